"""From pods to answers: the start of a kubelet, topology admission, the node fit."""
