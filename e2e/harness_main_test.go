//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// programs is where the built programs stand.
var programs string

// slow is how much longer everything may take than on an idle machine without the race detector.
var slow = 1

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "swamp-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	if os.Getenv("E2E_RACE") != "" {
		args, slow = append(args, "-race"), 4
	}
	build := exec.Command("go", append(args, "../cmd/swampd", "../cmd/swamp-worker", "../cmd/swamp")...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the programs: %v\n%s", err, out)
		return 1
	}
	programs = dir
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// cleanEnv is the environment of this process without what would change what the programs do.
func cleanEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		switch {
		case strings.HasPrefix(name, "SWAMP"), strings.HasPrefix(name, "XDG_"), strings.HasSuffix(strings.ToLower(name), "_proxy"),
			name == "HOME", name == "TMPDIR", name == "GORACE":
		default:
			env = append(env, e)
		}
	}
	return append(env, "NO_COLOR=1")
}
