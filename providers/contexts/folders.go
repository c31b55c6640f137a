package contexts

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// folders are folders to watch, by their paths without symbolic links.
type folders map[string]struct{}

// mostLinks is how many symbolic links are followed on the way to a file, as in Linux (path_resolution(7)).
const mostLinks = 40

// add adds the folders in which to watch for changes of what an absolute path leads to: the folder at its end, those that
// have the symbolic links on the way, and the last that exists if it leads nowhere. Folders further up are not watched:
// if one of them is renamed, that is found out at the next reading.
func (f folders) add(path string) { f.follow(path, mostLinks) }

func (f folders) follow(path string, links int) {
	here := filepath.VolumeName(path) + string(filepath.Separator)
	names := strings.Split(strings.TrimPrefix(filepath.Clean(path), here), string(filepath.Separator))
	for i, name := range names {
		there := filepath.Join(here, name)
		info, err := os.Lstat(there)
		switch {
		case err != nil:
			f[here] = struct{}{}
			return
		case info.Mode()&fs.ModeSymlink != 0:
			f[here] = struct{}{}
			if target, err := os.Readlink(there); err == nil && links > 0 {
				if !filepath.IsAbs(target) {
					target = filepath.Join(here, target)
				}
				f.follow(filepath.Join(append([]string{target}, names[i+1:]...)...), links-1)
			}
			return
		case info.IsDir():
			here = there
		}
	}
	f[here] = struct{}{}
}
