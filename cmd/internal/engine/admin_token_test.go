package engine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/swampd/swampd/cmd/internal/daemon"
)

func TestAdminToken(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	token, fresh, err := adminToken(dir)
	if err != nil || !fresh || len(token.Reveal()) != 64 {
		t.Fatalf("%d characters, fresh %t, %v", len(token.Reveal()), fresh, err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("asking for the token made the directory: %v", err)
	}
	if err := makeDataDir(dir); err != nil {
		t.Fatal(err)
	}
	if err := saveAdminToken(dir, token); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, daemon.AdminTokenFile): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind %v, %v", entries, err)
	}
	again, fresh, err := adminToken(dir)
	if err != nil || fresh || again != token {
		t.Errorf("the second start has another token: fresh %t, %v", fresh, err)
	}
}
