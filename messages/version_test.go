package messages_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/swampd/swampd/messages"
)

// wireDigest pins the meaning of ProtocolVersion: it is the digest of what workers see of the wire and of the list of
// denied variables.
const wireDigest = "1317d776a793c26276e65b8552ea74bd06f1eae758b641aee2f21f907c6225b6"

func TestProtocolVersion_IsPinnedToWhatWorkersSee(t *testing.T) {
	t.Parallel()
	wire := workerFacing()
	sum := sha256.Sum256([]byte(wire + "denied " + strings.Join(deniedLiterals(t), " ")))
	if got := hex.EncodeToString(sum[:]); got != wireDigest {
		t.Errorf("what workers see of the wire, or the denylist of the environment, has changed: bump ProtocolVersion, "+
			"write the line of its history, and then set wireDigest to %s.\n"+
			"What workers see now:\n%s", got, wire)
	}
}

// workerFacing describes every message that a worker may send or get: one line for each field.
func workerFacing() string {
	var b strings.Builder
	seen := map[protoreflect.FullName]bool{}
	var walk func(m protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		var below []protoreflect.MessageDescriptor
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			switch m.Name() {
			case "Request", "Response":
				if f.Number() >= 40 { // a client's
					continue
				}
			case "Event":
				if f.Name() == "run" || f.Name() == "backup" || f.Name() == "actor" { // for clients
					continue
				}
			}
			kind := f.Kind().String()
			if f.Message() != nil {
				kind = string(f.Message().FullName())
				below = append(below, f.Message())
			}
			fmt.Fprintf(&b, "%s.%s = %d %s %s\n", m.Name(), f.Name(), f.Number(), f.Cardinality(), kind)
		}
		for _, d := range below {
			walk(d)
		}
	}
	walk((&messages.Frame{}).ProtoReflect().Descriptor())
	return b.String()
}

// deniedLiterals are the texts in the body of DeniedEnv.
func deniedLiterals(t *testing.T) []string {
	t.Helper()
	syntax, err := parser.ParseFile(token.NewFileSet(), "version.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, d := range syntax.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "DeniedEnv" {
			ast.Inspect(f, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					found = append(found, text)
				}
				return true
			})
		}
	}
	if len(found) == 0 {
		t.Fatal("the denylist was not found in version.go")
	}
	slices.Sort(found)
	return found
}

func TestNegotiateProtocol(t *testing.T) {
	t.Parallel()
	lo, hi := int32(messages.ProtocolMin), int32(messages.ProtocolVersion)
	tests := []struct {
		name     string
		min, max int32
		want     int32 // 0: refused
	}{
		{"the same range", lo, hi, hi},
		{"a newer worker that still speaks ours", lo, hi + 5, hi},
		{"an older worker that speaks our oldest", lo - 1, lo, lo},
		{"a worker that is too new", hi + 1, hi + 2, 0},
		{"a worker that is too old", lo - 2, lo - 1, 0},
		{"a range that is upside down", hi, hi - 1, 0},
		{"a worker that names none", 0, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := messages.NegotiateProtocol(tt.min, tt.max)
			if got != tt.want || (err == nil) != (tt.want != 0) {
				t.Fatalf("version %d, %v; want %d", got, err, tt.want)
			}
			if err == nil {
				return
			}
			if code := messages.CodeOf(err); code != messages.CodeProtocolMismatch {
				t.Errorf("code %s", code)
			}
			for _, version := range []int32{tt.min, tt.max, lo, hi} {
				if !strings.Contains(err.Error(), strconv.Itoa(int(version))) {
					t.Errorf("%q does not name version %d", err, version)
				}
			}
		})
	}
}

func TestDeniedEnv(t *testing.T) {
	t.Parallel()
	denied := []string{
		"HOME", "USER", "LOGNAME", "SHELL", "PATH", "PWD", "TMPDIR", "TERM", "LANG", "TZ", "LC_ALL", "LC_", "XDG_RUNTIME_DIR",
		"LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "ENV", "IFS", "BASH_FUNC_ls%%", "GODEBUG", "GOMEMLIMIT",
		"SWAMP", "SWAMP_SERVER_TOKEN", "SWAMPD_LISTEN", "SWAMPX", "swamp_server_token", "Path", "home",
	}
	allowed := []string{"", "HOMEBREW_PREFIX", "USERDOMAIN", "PATHEXT", "MY_SWAMP", "GOFLAGS", "AWS_REGION", "LC", "XDG", "LD_AUDITOR", "TZDIR"}
	for _, name := range denied {
		if !messages.DeniedEnv(name) {
			t.Errorf("%s is shipped", name)
		}
	}
	for _, name := range allowed {
		if messages.DeniedEnv(name) {
			t.Errorf("%s is not shipped", name)
		}
	}
}
