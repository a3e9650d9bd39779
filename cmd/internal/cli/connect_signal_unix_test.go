//go:build unix

package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/swampd/swampd/messages"
)

// startWorker starts the built program as a worker, which has to print that event.
func startWorker(t *testing.T, url, event string, args ...string) *process {
	t.Helper()
	p := &process{out: newBuffer(), err: newBuffer(), ended: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], append([]string{url, "--output", "json", "--cache-dir", t.TempDir()}, args...)...)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("w.0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.cmd.Env = []string{envProgram + "=" + string(SwampWorker), "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "SWAMP_WORKER_TOKEN_FILE=" + token}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	p.cmd.SysProcAttr = ownGroup()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // how it ended is in its state
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	p.out.waitFor(t, `"kind":"`+event+`"`)
	return p
}

type process struct {
	cmd      *exec.Cmd
	out, err *buffer
	ended    chan struct{}
}

// signal sends a signal, and returns the exit code of a process that ends because of it.
func (p *process) signal(t *testing.T, s syscall.Signal) int {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(15 * time.Second):
		t.Fatalf("it does not end: %s%s", p.out.String(), p.err.String())
		return -1
	}
}

// last is the last event.
func (p *process) last(t *testing.T) map[string]any {
	t.Helper()
	event := map[string]any{}
	lines := bufio.NewScanner(strings.NewReader(p.out.String()))
	for lines.Scan() {
		clear(event)
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
	}
	return event
}

// half is an orchestrator that gets as far as that.
func half(t *testing.T, answer func(ws *websocket.Conn, enroll string)) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var handlers sync.WaitGroup // the server does not wait for connections that are none of HTTP any more
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{messages.Subprotocol}})
		if err != nil {
			return
		}
		defer ws.CloseNow()
		_, data, err := ws.Read(ctx)
		if err != nil {
			return
		}
		frame, err := messages.DecodeFrame(data, messages.CodingProtobuf)
		if err != nil {
			return
		}
		answer(ws, frame.GetId())
		for err == nil { // it hears, and says nothing
			_, _, err = ws.Read(ctx)
		}
	}))
	t.Cleanup(func() {
		cancel()
		server.Close()
		handlers.Wait()
	})
	return server.URL
}

// TestConnect_SignalsInEveryState stops a process that is not connected, in each way in which one can fail to be.
func TestConnect_SignalsInEveryState(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel connects, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	say := func(f *messages.Frame) func(*websocket.Conn, string) {
		return func(ws *websocket.Conn, id string) {
			f := &messages.Frame{Id: id, Body: f.GetBody()}
			if data, err := messages.EncodeFrame(f, messages.CodingProtobuf); err == nil {
				_ = ws.Write(t.Context(), websocket.MessageBinary, data)
			}
		}
	}
	refused := &messages.Frame{Body: &messages.Frame_Error{Error: &messages.Error{Code: string(messages.CodeNotReady), Text: "starting"}}}
	admitted := &messages.Frame{Body: &messages.Frame_Response{Response: messages.NewResponse(messages.VerbWorkerEnroll, &messages.EnrollResult{Worker: "w"})}}
	states := []struct {
		name, event string
		url         string
		answer      func(*websocket.Conn, string) // of an orchestrator behind half, in place of a URL
	}{
		{"nobody listens", "retrying", "http://127.0.0.1:1", nil},
		{"nobody answers", "connecting", "http://" + silent.Addr().String(), nil},
		{"the enrollment is not answered", "connecting", "", func(*websocket.Conn, string) {}},
		{"the enrollment is refused for now", "retrying", "", say(refused)},
		{"enrolled, and nobody answers any more", "enrolled", "", say(admitted)},
	}
	for _, state := range states {
		for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
			t.Run(fmt.Sprintf("%s when %s", s, state.name), func(t *testing.T) {
				t.Parallel()
				url := state.url
				came := make(chan struct{}, 100)
				if state.answer != nil {
					url = half(t, func(ws *websocket.Conn, id string) {
						state.answer(ws, id)
						came <- struct{}{}
					})
				}
				p := startWorker(t, url, state.event)
				if state.answer != nil {
					<-came
				}
				if code := p.signal(t, s); code != ExitOK {
					t.Errorf("exit %d: %s", code, p.err.String())
				}
				if e := p.last(t); e["kind"] != "stopped" || e["reason"] != "signal" || e["error"] != nil {
					t.Errorf("the last event is %v", e)
				}
				if !strings.Contains(p.err.String(), "a second signal kills it") {
					t.Errorf("it does not say what a second signal does: %s", p.err.String())
				}
			})
		}
	}
}

// TestConnect_ASecondSignalDoesNotWait sends it to a process that still waits for the first one.
func TestConnect_ASecondSignalDoesNotWait(t *testing.T) {
	t.Parallel()
	came := make(chan struct{})
	p := startWorker(t, half(t, func(*websocket.Conn, string) { close(came) }), "connecting")
	<-came
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.err.waitFor(t, "a second signal kills it")
	if code := p.signal(t, syscall.SIGTERM); code != ExitFailed {
		t.Errorf("exit %d: %s", code, p.err.String())
	}
	if e := p.last(t); e["kind"] != "stopped" || e["reason"] != "forced" {
		t.Errorf("the last event is %v", e)
	}
}

// TestConnect_PoliciesEndAProcessWell lets the process leave by its own rules.
func TestConnect_PoliciesEndAProcessWell(t *testing.T) {
	t.Parallel()
	for flag, reason := range map[string]string{"--max-uptime": "max_uptime", "--idle-timeout": "idle_timeout"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			admitted := messages.NewResponse(messages.VerbWorkerEnroll, &messages.EnrollResult{Worker: "w"})
			url := half(t, func(ws *websocket.Conn, id string) {
				data, err := messages.EncodeFrame(&messages.Frame{Id: id, Body: &messages.Frame_Response{Response: admitted}}, messages.CodingProtobuf)
				if err == nil {
					_ = ws.Write(t.Context(), websocket.MessageBinary, data)
				}
			})
			p := startWorker(t, url, "stopped", flag, "100ms")
			<-p.ended
			if code := p.cmd.ProcessState.ExitCode(); code != ExitOK {
				t.Errorf("exit %d: %s", code, p.err.String())
			}
			if e := p.last(t); e["kind"] != "stopped" || e["reason"] != reason {
				t.Errorf("the last event is %v", e)
			}
		})
	}
}
