package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ownDirs are the folders at the root that a node, and each container, has for itself; all others are the machine's, read-only.
var ownDirs = []string{"proc", "sys", "dev", "run", "tmp", "etc", "var", "mnt"}

// etcEntries are what programs of the machine need from /etc.
var etcEntries = []string{
	"passwd", "group", "nsswitch.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "ssl", "pki",
	"ca-certificates", "mime.types", "services", "protocols", "os-release",
}

// layOutRoot mounts a tmpfs at root and gives it the software of the root at from, read-only, and empty own folders.
func layOutRoot(root, from string) error {
	if err := mkdirAll(root); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("tmpfs at %s: %w", root, err)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if slices.Contains(ownDirs, entry.Name()) {
			continue
		}
		source, target := filepath.Join(from, entry.Name()), filepath.Join(root, entry.Name())
		switch {
		case entry.Type()&os.ModeSymlink != 0:
			to, err := os.Readlink(source)
			if err != nil {
				return err
			}
			if err := os.Symlink(to, target); err != nil {
				return err
			}
		case entry.IsDir():
			if err := mkdirAll(target); err != nil {
				return err
			}
			if err := bind(source, target, true); err != nil {
				return err
			}
		}
	}
	for _, name := range ownDirs {
		if err := mkdirAll(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky)
}

// bind mounts source with all below it at target, and makes that read-only if asked.
func bind(source, target string, readOnly bool) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s at %s: %w", source, target, err)
	}
	if err := unix.Mount("", target, "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private %s: %w", target, err)
	}
	if !readOnly {
		return nil
	}
	return makeReadOnly(target, true)
}

func makeReadOnly(target string, recursive bool) error {
	flags := uint(0)
	if recursive {
		flags = unix.AT_RECURSIVE
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, target, flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("read-only %s: %w (Linux 5.12 or later is needed)", target, err)
	}
	return nil
}

// bindAt mounts source at path inside root, making the mount point; parents that are read-only are laid out anew.
func bindAt(root, source, path string, readOnly bool) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	target, err := mountPoint(root, path, info.IsDir())
	if err != nil {
		return fmt.Errorf("mount point %s: %w", path, err)
	}
	return bind(source, target, readOnly)
}

// mountPoint makes path exist inside root, as a folder or an empty file, and returns where it is. Symbolic links are
// followed inside root. A folder that cannot take the new entry is covered by a tmpfs that shows the old entries.
func mountPoint(root, path string, dir bool) (string, error) {
	current := root
	parts := strings.Split(strings.Trim(filepath.Clean(path), "/"), "/")
	for hops := 0; len(parts) > 0; {
		if parts[0] == "" {
			parts = parts[1:]
			continue
		}
		next := filepath.Join(current, parts[0])
		info, err := os.Lstat(next)
		switch {
		case err == nil && info.Mode()&os.ModeSymlink != 0:
			if hops++; hops > 40 {
				return "", fmt.Errorf("%s: too many symbolic links", path)
			}
			link, err := os.Readlink(next)
			if err != nil {
				return "", err
			}
			if !filepath.IsAbs(link) {
				link = filepath.Join("/", strings.TrimPrefix(current, root), link)
			}
			current = root
			parts = append(strings.Split(strings.Trim(filepath.Clean(link), "/"), "/"), parts[1:]...)
			continue
		case errors.Is(err, os.ErrNotExist):
			make := func() error { return os.Mkdir(next, 0o755) }
			if len(parts) == 1 && !dir {
				make = func() error { return touch(next) }
			}
			if err := make(); errors.Is(err, unix.EROFS) {
				if err := cover(current); err != nil {
					return "", err
				}
				if err := make(); err != nil {
					return "", err
				}
			} else if err != nil {
				return "", err
			}
		case err != nil:
			return "", err
		}
		current, parts = next, parts[1:]
	}
	return current, nil
}

// cover mounts a tmpfs over dir that shows the same entries.
func cover(dir string) error {
	original, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer original.Close()
	entries, err := original.ReadDir(-1)
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	for _, entry := range entries {
		source, target := fmt.Sprintf("/proc/self/fd/%d/%s", original.Fd(), entry.Name()), filepath.Join(dir, entry.Name())
		switch {
		case entry.Type()&os.ModeSymlink != 0:
			link, err := os.Readlink(source)
			if err != nil {
				return err
			}
			if err := os.Symlink(link, target); err != nil {
				return err
			}
			continue
		case entry.IsDir():
			err = os.Mkdir(target, 0o755)
		default:
			err = touch(target)
		}
		if err != nil {
			return err
		}
		if err := bind(source, target, true); err != nil {
			return err
		}
	}
	return nil
}

// enterRoot makes root the root of this mount namespace and lets go of the old one.
func enterRoot(root string) error {
	if err := unix.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root to %s: %w", root, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// copyEtc fills a folder with what programs need from the machine's /etc; existing entries stay.
func copyEtc(from, to string) error {
	for _, name := range etcEntries {
		if err := copyTree(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

func copyTree(from, to string) error {
	info, err := os.Lstat(from)
	if errors.Is(err, os.ErrNotExist) || exists(to) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		link, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(link, to)
	case info.IsDir():
		if err := mkdirAll(to); err != nil {
			return err
		}
		entries, err := os.ReadDir(from)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := copyTree(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
				return err
			}
		}
		return nil
	case info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0:
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		return os.WriteFile(to, content, info.Mode().Perm())
	}
	return nil
}
