"""Decides a pool's KubeletConfiguration and proves that every planned pod is admitted in any order."""
