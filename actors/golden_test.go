package actors_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// golden compares text with a file of testdata. REWRITE=1 writes the file instead.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("REWRITE") != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read the golden file (REWRITE=1 writes it): %v", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; REWRITE=1 writes it):\n%s", file, diff)
	}
}

// shape is a message as scripts see it, with names for what differs from run to run.
func shape(t *testing.T, m proto.Message, names ...string) string {
	t.Helper()
	data, err := messages.MarshalShape(m)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(names...).Replace(b.String()) + "\n"
}
