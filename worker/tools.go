package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// toolsDir is the folder of the programs that steps find, under the names by which they find them.
func toolsDir(cacheDir string) string { return filepath.Join(cacheDir, "bin") }

// makeTools makes the folder hold the tools. It is looked at for each step: whoever cleans caches may have removed it.
func makeTools(cacheDir string, tools map[string]string) error {
	for name, program := range tools {
		if err := makeTool(filepath.Join(toolsDir(cacheDir), name+programSuffix), program); err != nil {
			return fmt.Errorf("put %s on the path of steps: %w", name, err)
		}
	}
	return nil
}

func makeTool(path, program string) error {
	if sameTool(path, program) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// Under a name of its own first: another step may do the same now.
	staged, err := os.MkdirTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(staged) //nolint:errcheck // what is left of it does no harm
	fresh := filepath.Join(staged, filepath.Base(path))
	if err := linkTool(fresh, program); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil && !sameTool(path, program) {
		return err
	}
	return nil
}

// withTools puts the folder of the tools before what a step finds its programs by.
func withTools(env []string, dir string) []string {
	at := slices.IndexFunc(env, func(entry string) bool {
		name, _, ok := cutEnv(entry)
		return ok && envKey(name) == "PATH"
	})
	if at < 0 {
		return append(env, "PATH="+dir+string(os.PathListSeparator)+defaultPath)
	}
	name, value, _ := cutEnv(env[at])
	env[at] = name + "=" + dir
	if value != "" {
		env[at] += string(os.PathListSeparator) + value
	}
	return env
}

// validateTools refuses what cannot be put on a path.
func validateTools(tools map[string]string) error {
	for name, program := range tools {
		if !pathElement(name) || strings.HasPrefix(name, ".") {
			return fmt.Errorf("tool %q: its name is no file name", name)
		}
		if !filepath.IsAbs(program) {
			return fmt.Errorf("tool %q: its program %q is no absolute path", name, program)
		}
	}
	return nil
}

// checkToolsDir tells whether the folder can be on a path.
func checkToolsDir(cacheDir string) error {
	if strings.ContainsRune(cacheDir, os.PathListSeparator) {
		return fmt.Errorf("the cache directory %q has the separator of path lists in its name", cacheDir)
	}
	return nil
}
