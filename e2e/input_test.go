//go:build e2e

package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
)

// wantOneLine wants one line on standard error with those parts, nothing on standard output, and the exit code.
func wantOneLine(t *testing.T, p *process, code int, parts ...string) {
	t.Helper()
	p.exits(30*time.Second, code)
	if len(p.stderr()) != 1 || len(p.stdout()) != 0 {
		t.Errorf("%s prints %d lines and %d of data, not one: %s", p.name, len(p.stderr()), len(p.stdout()), p.text())
	}
	for _, part := range parts {
		if !strings.Contains(p.text(), part) {
			t.Errorf("%s says nothing of %q: %s", p.name, part, p.text())
		}
	}
}

func TestInput_WrongUsageIsOneLineThatNamesItAnd2(t *testing.T) {
	t.Parallel()
	f := idleFleet(t)
	if err := os.WriteFile(f.path("empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		program string
		args    []string
		env     []string
		says    []string
	}{
		{"an unknown flag of swampd", "swampd", []string{"--bogus"}, nil, []string{"--bogus"}},
		{"a grace of less than a second", "swampd", []string{"--grace-window", "0.5"}, nil, []string{"--grace-window", "1s"}},
		{"a negative time", "swampd", []string{"--queue-timeout", "-1s"}, nil, []string{"--queue-timeout"}},
		{"a time that is none, in a variable", "swampd", nil, []string{"SWAMPD_QUEUE_TIMEOUT=soon"}, []string{"SWAMPD_QUEUE_TIMEOUT", "soon"}},
		{"an address without a port", "swampd", []string{"--listen", "localhost"}, nil, []string{"--listen"}},
		{"a port above 65535", "swampd", nil, []string{"SWAMPD_LISTEN=127.0.0.1:70000"}, []string{"SWAMPD_LISTEN"}},
		{"a certificate without its key", "swampd", []string{"--tls-cert", "x"}, nil, []string{"--tls-key"}},
		{"a word that is no switch", "swampd", []string{"--loopback", "maybe"}, nil, []string{"--loopback", "maybe"}},
		{"an argument where none is wanted", "swampd", []string{"now"}, nil, []string{"now"}},
		{"a worker without a URL", "swamp-worker", nil, nil, []string{"SWAMP_ORCHESTRATOR_URL"}},
		{"a worker without a token", "swamp-worker", []string{"ws://127.0.0.1:1"}, nil, []string{"SWAMP_WORKER_TOKEN"}},
		{"a URL with a path", "swamp-worker", []string{"ws://127.0.0.1:1/x", "--token", "a.b"}, nil, []string{"path"}},
		{"a URL of another kind", "swamp-worker", nil, []string{"SWAMP_ORCHESTRATOR_URL=ftp://x", "SWAMP_WORKER_TOKEN=a.b"}, []string{"SWAMP_ORCHESTRATOR_URL", "ftp"}},
		{"a token without a secret", "swamp-worker", []string{"ws://127.0.0.1:1"}, []string{"SWAMP_WORKER_TOKEN=abc"}, []string{"SWAMP_WORKER_TOKEN"}},
		{"a token file that is not there", "swamp-worker", []string{"ws://127.0.0.1:1", "--token-file", "gone"}, nil, []string{"--token-file", "gone"}},
		{"a token file that is empty", "swamp-worker", []string{"ws://127.0.0.1:1", "--token-file", "empty"}, nil, []string{"--token-file"}},
		{"a label without a value", "swamp-worker", []string{"ws://127.0.0.1:1", "--label", "gpu"}, nil, []string{"--label", "gpu"}},
		{"a label with a space in its key", "swamp-worker", []string{"ws://127.0.0.1:1", "--label", "g u=1"}, nil, []string{"--label"}},
		{"no slot at all", "swamp-worker", []string{"ws://127.0.0.1:1", "--concurrency", "0"}, nil, []string{"--concurrency"}},
		{"an unknown command", "swamp", []string{"wrokflow"}, nil, []string{"wrokflow"}},
		{"a command without its file", "swamp", []string{"workflow", "run"}, nil, []string{"FILE"}},
		{"a file that is not there", "swamp", []string{"workflow", "run", "gone.yaml"}, nil, []string{"gone.yaml"}},
		{"an output that is none", "swamp", []string{"run", "list", "--output", "xml"}, nil, []string{"--output", "xml"}},
		{"a server that is no URL", "swamp", []string{"run", "list"}, []string{"SWAMP_SERVER=::"}, []string{"SWAMP_SERVER"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantOneLine(t, f.launch(tt.program, startOptions{env: tt.env}, tt.args...), 2, tt.says...)
		})
	}
}

func TestInput_AWrongWorkflowIsALineForEachMistake(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	path := f.write("name: x\njobs:\n  - name: main\n    stepz: []\n    steps:\n      - {name: a, run: 'true', dependsOn: [b]}\n      - {name: a, run: 'true'}\n")
	for _, command := range []string{"run", "validate"} {
		p := f.client("workflow", command, path)
		p.exits(20*time.Second, 2)
		if len(p.stderr()) < 2 || !strings.HasPrefix(p.stderr()[0], path+":4:5") || !strings.Contains(p.text(), "steps") {
			t.Errorf("workflow %s says: %s", command, p.text())
		}
		for _, l := range p.stderr() {
			if !strings.HasPrefix(l, path+":") {
				t.Errorf("a line without its place: %q", l)
			}
		}
	}
	var runs list[struct{ RunID string }]
	if f.ask("run.list", "{}", &runs); len(runs.Items) != 0 {
		t.Errorf("there are runs of it: %v", runs)
	}
}

func TestInput_AWorkflowThatIsMadeToHurtIsRefusedFast(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 x\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&bomb, "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1, i-1, i-1)
	}
	for _, tt := range []struct{ name, yaml string }{
		{"aliases of aliases", bomb.String()},
		{"a hundred thousand brackets", "name: " + strings.Repeat("[", 100_000)},
		{"ten megabytes", "name: " + strings.Repeat("x", 10<<20)},
		{"nothing", ""},
		{"two documents", flow(step("a", "true")) + "---\n" + flow(step("b", "true"))},
		{"a tab", "name: x\njobs:\n\t- name: y\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := f.client("workflow", "run", f.write(tt.yaml))
			p.exits(20*time.Second, 2)
		})
		t.Run(tt.name+" over HTTP", func(t *testing.T) {
			r, err := http.NewRequest(http.MethodPost, f.url()+"/v1/rpc/workflow.run", strings.NewReader(
				fmt.Sprintf(`{"runId":"01998f7e-6f0e-7cc1-9d0f-1f1b3c1d2e3f","file":"x.yaml","source":%q}`, tt.yaml)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+f.admin())
			answer, err := f.http.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode < 400 || answer.StatusCode >= 500 {
				t.Errorf("the answer is %s", answer.Status)
			}
		})
	}
	f.ends(f.detach(flow(step("one", "true"))), 20*time.Second, "succeeded")
}

// dial opens a WebSocket as a client or, without the token, as a worker does.
func (f *fleet) dial(ctx context.Context, admin bool) *websocket.Conn {
	f.t.Helper()
	header := http.Header{}
	if admin {
		header.Set("Authorization", "Bearer "+f.admin())
	}
	c, _, err := websocket.Dial(ctx, "ws://"+f.addr+"/v1/connect", &websocket.DialOptions{HTTPHeader: header, HTTPClient: f.http})
	if err != nil {
		f.t.Fatal(err)
	}
	c.SetReadLimit(8 << 20)
	return c
}

func TestInput_BadFramesGetAnErrorAndDisturbNobodyElse(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	w := f.worker("w", "--label", "pool=a")
	run := f.follow(flow(step("count", counting, "labels: {pool: a}")))
	run.event(10*time.Second, "step_output", "count")
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	noise := make([]byte, 4096)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		admin bool
		kind  websocket.MessageType
		data  string
		code  string
		ends  bool // the socket is closed after the answer
	}{
		{"bytes that are nothing", true, websocket.MessageBinary, string(noise), "malformed", false},
		{"text that is nothing", true, websocket.MessageText, "hello", "malformed", false},
		{"JSON of another shape", true, websocket.MessageText, `[1,2,3]`, "malformed", false},
		{"a frame without a body", true, websocket.MessageText, `{"id":"1"}`, "malformed", false},
		{"an unknown verb", true, websocket.MessageText, `{"id":"1","request":{"verb":"run.frobnicate"}}`, "unknown_verb", false},
		{"a worker that does not enroll first", false, websocket.MessageText, `{"id":"1","request":{"verb":"worker.ping","workerPing":{}}}`, "out_of_order", false},
		{"a client without a token", false, websocket.MessageText, `{"id":"1","request":{"verb":"run.list","runList":{}}}`, "", false},
		{"a token that nobody made", false, websocket.MessageText, `{"id":"1","request":{"verb":"worker.enroll","workerEnroll":{"token":"w.0000","machineId":"m","instanceUuid":"i","protocolMin":1,"protocolMax":1,"platform":"linux","arch":"amd64","capacity":1,"slotsOffered":1}}}`, "invalid_token", false},
		{"a frame of 5 MiB", true, websocket.MessageBinary, strings.Repeat("x", 5<<20), "frame_too_large", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := f.dial(ctx, tt.admin)
			defer c.CloseNow()
			if err := c.Write(ctx, tt.kind, []byte(tt.data)); err != nil && !tt.ends {
				t.Fatal(err)
			}
			_, answer, err := c.Read(ctx)
			if tt.ends && err != nil {
				answer = []byte(err.Error()) // the reason of the close names the code
			} else if err != nil {
				t.Fatal(err)
			}
			if tt.code != "" && !strings.Contains(string(answer), tt.code) {
				t.Errorf("the answer is %q, and does not say %s", answer, tt.code)
			}
			if strings.Contains(string(answer), `"runList"`) {
				t.Errorf("it was told: %q", answer)
			}
			if tt.ends {
				if _, _, err := c.Read(ctx); err == nil {
					t.Error("the socket is still open")
				}
				return
			}
			if err := c.Ping(pinging(ctx, c)); err != nil {
				t.Errorf("the socket is of no use any more: %v", err)
			}
		})
	}
	t.Run("what is no HTTP", func(t *testing.T) {
		for range 20 {
			c, err := net.Dial("tcp", f.addr)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.Write(noise) // it may be closed meanwhile
			c.Close()
		}
	})
	run.exits(30*time.Second, 0)
	wantWhole(t, run.events(), "count", counted())
	if strings.Contains(w.text(), "disconnected") {
		t.Errorf("the worker was disturbed: %s", w.text())
	}
}

// pinging reads from a connection in the background, as a ping needs.
func pinging(ctx context.Context, c *websocket.Conn) context.Context { return c.CloseRead(ctx) }

// snapshot is what stands in a folder: names, sizes and contents.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestInput_ASecondSwampdOnADirectorySaysWhoHoldsIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	second := f.launch("swampd", startOptions{}, "--listen", freeAddress(t), "--data-dir", f.data)
	wantOneLine(t, second, 1, f.data, fmt.Sprint(f.d.pid))
	f.ends(f.detach(flow(step("one", "true"))), 20*time.Second, "succeeded")
}

func TestInput_APortInUseIsNamedAndNothingIsTouched(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	data := f.path("another")
	second := f.launch("swampd", startOptions{}, "--listen", f.addr, "--data-dir", data)
	wantOneLine(t, second, 1, f.addr, "in use")
	if _, err := os.Stat(data); err == nil {
		t.Error("it has made its data directory")
	}
}

func TestInput_ADirectoryThatCannotBeMadeIsNamed(t *testing.T) {
	t.Parallel()
	f := idleFleet(t)
	file := f.write("a file")
	wantOneLine(t, f.launch("swampd", startOptions{}, "--listen", f.addr, "--data-dir", filepath.Join(file, "data")), 1, file, "--data-dir")
	worker := f.launch("swamp-worker", startOptions{}, "ws://"+f.addr, "--token", "a.b", "--cache-dir", filepath.Join(file, "cache"))
	worker.exits(20*time.Second, 1)
	if !strings.Contains(worker.text(), file) {
		t.Errorf("the worker does not name the folder: %s", worker.text())
	}
}

func TestInput_AStoreOfANewerFormatIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.detach(flow(step("wait", "true", "labels: {pool: none}")))
	f.stop()
	path := filepath.Join(f.data, "store.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newer := strings.Replace(string(text), `"format": 1`, `"format": 99`, 1)
	if newer == string(text) {
		t.Fatalf("the store does not say its format: %s", text)
	}
	if err := os.WriteFile(path, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, f.data)
	wantOneLine(t, f.launchSwampd(), 1, "99", "newer")
	if diff := cmp.Diff(before, snapshot(t, f.data)); diff != "" {
		t.Error("it has changed the store")
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	f.start()
	f.queueHas(1, 10*time.Second)
}
