package main

import (
	"fmt"
	"runtime"
	"slices"
	"sort"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apipod "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

// take is Kubelet.HandlePodAdditions and the allocation manager's canAdmitPod for one pod, or the end of one. `panicked`: the
// kubelet's process would have crashed.
func (n *node) take(index int, step *podStep) (answer podResult, panicked bool) {
	answer = podResult{Name: step.Name, Containers: []containerResult{}}
	n.evicted = nil
	defer func() {
		answer.Preempted = n.evicted
		if r := recover(); r != nil {
			stack := make([]byte, 4096)
			answer.Admitted, answer.Reason = false, "KubeletPanic"
			answer.Message, panicked = fmt.Sprintf("%v\n%s", r, stack[:runtime.Stack(stack, false)]), true
		} else if n.static {
			answer.SharedCPUs = n.cpus.GetCPUAffinity("", "").String()
		}
	}()
	if step.Remove {
		found := n.drop(func(pod *v1.Pod) bool { return pod.Name == step.Name })
		answer.Removed = &found
		return answer, false
	}
	pod, err := fromAPIServer(index, step)
	if err != nil {
		answer.Reason, answer.Message, answer.Handler = "InvalidPod", err.Error(), "apiserver"
		return answer, false
	}
	answer.QOS = string(pod.Status.QOSClass)
	others := slices.Clone(n.active)
	n.active = append(slices.Clone(n.active), pod)
	for _, h := range n.handlers {
		verdict := h.admit(pod, others)
		if !verdict.Admit {
			answer.Reason, answer.Message, answer.Handler = verdict.Reason, verdict.Message, h.name
			n.drop(func(other *v1.Pod) bool { return other == pod })
			return answer, false
		}
	}
	answer.Admitted = true
	answer.PodCPUs = n.podCPUs(string(pod.UID))
	answer.Containers = n.startContainers(pod)
	return answer, false
}

// startContainers says what each container got, and starts them in order: an init container has ended before the next one starts.
func (n *node) startContainers(pod *v1.Pod) []containerResult {
	uid := string(pod.UID)
	containers := containersOf(pod)
	results := []containerResult{}
	for _, c := range containers {
		answer := containerResult{Name: c.Name, MemoryNUMA: []int{}, Devices: map[string][]string{}}
		answer.CPUs = n.cpus.GetExclusiveCPUs(uid, c.Name).String()
		for id := range n.memoryNodes(pod, &c) {
			answer.MemoryNUMA = append(answer.MemoryNUMA, id)
		}
		sort.Ints(answer.MemoryNUMA)
		hint := n.affinity(uid, c.Name)
		answer.Topology, answer.Preferred = nodesOf(hint), hint.Preferred
		results = append(results, answer)
	}
	for i, c := range containers {
		if !n.c.HoldStart {
			if err := n.containerStarted(pod, &c, uid+"/"+c.Name); err != nil {
				results[i].StartError = err.Error()
			}
		}
		for resource, devices := range n.devices.GetDevices(uid, c.Name) {
			results[i].Devices[resource] = sortedKeys(devices)
		}
	}
	return results
}

// fromAPIServer is the pod as a kubelet gets it: with defaults, validated, with its QoS class.
func fromAPIServer(index int, step *podStep) (*v1.Pod, error) {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: step.Name, Namespace: "default", UID: types.UID(fmt.Sprintf("uid-%d", index))},
		Spec: v1.PodSpec{
			NodeName:       "node",
			InitContainers: apiContainers(step.InitContainers),
			Containers:     apiContainers(step.Containers),
			Overhead:       step.Overhead,
			Priority:       step.Priority,
		},
	}
	if step.Resources != nil {
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: step.Resources.Requests, Limits: step.Resources.Limits}
	}
	corev1.SetObjectDefaults_Pod(pod)
	var internal core.Pod
	if err := corev1.Convert_v1_Pod_To_core_Pod(pod.DeepCopy(), &internal, nil); err != nil {
		return nil, err
	}
	completePodLevel(&internal)
	options := apipod.GetValidationOptionsFromPodSpecAndMeta(&internal.Spec, nil, &internal.ObjectMeta, nil)
	if errs := corevalidation.ValidatePodCreate(&internal, options); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	stored := &v1.Pod{}
	if err := corev1.Convert_core_Pod_To_v1_Pod(&internal, stored, nil); err != nil {
		return nil, err
	}
	stored.Status.QOSClass = v1qos.ComputePodQOS(stored)
	return stored, nil
}

func apiContainers(listed []container) []v1.Container {
	var found []v1.Container
	for _, c := range listed {
		resources := v1.ResourceRequirements{Requests: c.Requests, Limits: c.Limits}
		found = append(found, v1.Container{Name: c.Name, Image: "image", RestartPolicy: c.RestartPolicy, Resources: resources})
	}
	return found
}

func containersOf(pod *v1.Pod) []v1.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

// drop ends a pod or forgets a refused one; the managers free its resources at their next call, as in the kubelet.
func (n *node) drop(match func(*v1.Pod) bool) bool {
	index := slices.IndexFunc(n.active, match)
	if index < 0 {
		return false
	}
	pod := n.active[index]
	for _, c := range containersOf(pod) {
		n.containerRemoved(string(pod.UID) + "/" + c.Name)
	}
	n.active = slices.Delete(slices.Clone(n.active), index, index+1)
	return true
}

func (n *node) evict(pod *v1.Pod, _ bool, _ *int64, _ func(*v1.PodStatus)) error {
	n.evicted = append(n.evicted, pod.Name)
	n.drop(func(other *v1.Pod) bool { return other == pod })
	return nil
}

func nodesOf(hint topologymanager.TopologyHint) []int {
	if hint.NUMANodeAffinity == nil {
		return nil
	}
	return hint.NUMANodeAffinity.GetBits()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

func texts(list v1.ResourceList) map[string]string {
	found := map[string]string{}
	for name, quantity := range list {
		found[string(name)] = quantity.String()
	}
	return found
}
