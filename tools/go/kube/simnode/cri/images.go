package cri

import (
	"context"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImageRules says which images' containers are real processes of the node, and as which user an image runs by itself.
// A pattern is a repository (docker.io/library/python) or a prefix of one that ends in *.
type ImageRules struct {
	Process []string         `json:"process"`
	Users   map[string]int64 `json:"users"`
}

const imageSizeBytes = 1 << 30

// Repository is the full repository of an image reference: "python:3.12" is "docker.io/library/python".
func Repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	first, rest, nested := strings.Cut(image, "/")
	switch {
	case !nested:
		image = "docker.io/library/" + image
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		image = "docker.io/" + first + "/" + rest
	}
	if colon := strings.LastIndexByte(image, ':'); colon > strings.LastIndexByte(image, '/') {
		image = image[:colon]
	}
	return image
}

func matchesRepository(pattern, repository string) bool {
	if prefix, found := strings.CutSuffix(pattern, "*"); found {
		return strings.HasPrefix(repository, prefix)
	}
	return pattern == repository
}

// IsProcess tells whether containers of an image run the image's own program.
func (r ImageRules) IsProcess(image string) bool {
	repository := Repository(image)
	for _, pattern := range r.Process {
		if matchesRepository(pattern, repository) {
			return true
		}
	}
	return false
}

// User is the numeric user of an image; 0 where no rule says otherwise. The longest pattern counts.
func (r ImageRules) User(image string) int64 {
	repository, best, user := Repository(image), -1, int64(0)
	for pattern, uid := range r.Users {
		if matchesRepository(pattern, repository) && len(pattern) > best {
			best, user = len(pattern), uid
		}
	}
	return user
}

func (r *Runtime) image(name string) *runtimeapi.Image {
	return &runtimeapi.Image{
		Id: name, RepoTags: []string{name}, Size: imageSizeBytes, Uid: &runtimeapi.Int64Value{Value: r.options.Images.User(name)},
		Spec: &runtimeapi.ImageSpec{Image: name},
	}
}

func (r *Runtime) ImageStatus(_ context.Context, request *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{Image: r.image(request.Image.Image)}, nil
}

func (r *Runtime) PullImage(_ context.Context, request *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	return &runtimeapi.PullImageResponse{ImageRef: request.Image.Image}, nil
}

func (r *Runtime) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	answer, seen := &runtimeapi.ListImagesResponse{}, map[string]bool{}
	for _, c := range r.containers {
		if name := c.config.Image.Image; !seen[name] {
			seen[name] = true
			answer.Images = append(answer.Images, r.image(name))
		}
	}
	return answer, nil
}

func (r *Runtime) RemoveImage(context.Context, *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	return &runtimeapi.RemoveImageResponse{}, nil
}

func (r *Runtime) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	usage := []*runtimeapi.FilesystemUsage{{
		FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/var"}, UsedBytes: &runtimeapi.UInt64Value{}, InodesUsed: &runtimeapi.UInt64Value{},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: usage, ContainerFilesystems: usage}, nil
}
