package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swampd/swampd/messages"
)

// tripper is a transport that is a function.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// echoTripper answers with what came.
func echoTripper(r *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	fmt.Fprintf(recorder, "%s %s as %s", r.Method, r.URL.Path, r.Header.Get("Authorization"))
	return recorder.Result(), nil
}

// overSocket makes a request to SWAMP_DATA_URL.
func overSocket(t *testing.T, dataURL, path string) (string, error) {
	t.Helper()
	socket, ok := strings.CutPrefix(dataURL, "unix://")
	if !ok {
		t.Fatalf("the URL is %q", dataURL)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://data"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func TestDataSocket_LivesAsLongAsItsStep(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		deeper string // below the folder of the test
		inside bool   // the socket is in the scratch folder
	}{
		{"a short path", "", true},
		{"a path that is too long for a socket", strings.Repeat("deep/", 25), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cache, err := os.MkdirTemp("", "c") //nolint:usetesting // that of the test is too long itself
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(cache) })
			cache = filepath.Join(cache, tt.deeper)
			e := newTestExecutor(t, func(c *ExecutorConfig) { c.CacheDir = cache })
			task := shellTask("echo \"$SWAMP_DATA_URL\"; until [ -e go ]; do sleep 0.02; done")
			task.Data = tripper(echoTripper)
			r := e.start(t, task)
			url := strings.TrimSpace(r.out.waitFor(t, "\n"))
			got, err := overSocket(t, url, "/v1/data/x")
			if err != nil || got != "GET /v1/data/x as " {
				t.Errorf("%q, %v", got, err)
			}
			dir := filepath.Dir(strings.TrimPrefix(url, "unix://"))
			info, err := os.Stat(dir)
			if err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("the folder is %v, %v", info, err)
			}
			scratch := filepath.Join(cache, "scratch", task.DispatchID)
			if inside := strings.HasPrefix(dir, scratch); inside != tt.inside {
				t.Errorf("it is at %s", dir)
			}
			if err := os.WriteFile(filepath.Join(scratch, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if o := r.end(t); o.Status != OutcomeSucceeded {
				t.Errorf("outcome %+v", o)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder is left: %v", err)
			}
			if _, err := overSocket(t, url, "/v1/data/x"); err == nil {
				t.Error("it still answers")
			}
		})
	}
}

func TestDataSocket_NoWayNoVariable(t *testing.T) {
	t.Parallel()
	e := newTestExecutor(t)
	task := shellTask(`echo "<${SWAMP_DATA_URL-none}>"`)
	task.Env = []string{"SWAMP_DATA_URL=forged"}
	if _, out := e.run(t, task); out.text() != "<none>\n" {
		t.Errorf("it is %q", out.text())
	}
}

func TestShortFolders_WhatAnEarlierProcessLeftIsSwept(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	left, err := os.MkdirTemp("", shortFolders(cache)+"*") //nolint:usetesting // where a worker makes it
	if err != nil {
		t.Fatal(err)
	}
	others, err := os.MkdirTemp("", shortFolders(cache+"x")+"*") //nolint:usetesting // where a worker makes it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(others)
	sweepShortFolders(cache)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if _, err := os.Stat(others); err != nil {
		t.Errorf("that of another worker: %v", err)
	}
}

func TestAgent_AStepShowsTheCredentialOfItsLatestAdoption(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		refused := make(chan struct{}, 1)
		boot := "Bearer the-first-credential"
		ask, answers := make(chan struct{}), make(chan string)
		o := startAgent(t, func(ctx context.Context, task Task, started func(), _ Output) Outcome {
			started()
			for range ask {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://any/v1/data/x", nil)
				if err != nil {
					t.Error(err)
				}
				resp, err := task.Data.RoundTrip(req)
				if err != nil {
					t.Error(err)
					break
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				answers <- fmt.Sprint(string(body), err)
			}
			return Outcome{Status: OutcomeSucceeded, StartedAt: time.Now()}
		}, func(cfg *Config) {
			cfg.DataTransport = tripper(func(r *http.Request) (*http.Response, error) {
				if r.Header.Get("Authorization") == boot {
					return echoTripper(r)
				}
				select {
				case refused <- struct{}{}:
				default: // the test knows
				}
				recorder := httptest.NewRecorder()
				recorder.WriteHeader(http.StatusUnauthorized)
				return recorder.Result(), nil
			})
		}).run()
		c := o.enrolled()
		c.dispatch("d1", 1, func(p *messages.DispatchParams) { p.Credential = "the-first-credential" })
		c.takes("d1")
		ask <- struct{}{}
		if got := <-answers; got != "GET /v1/data/x as Bearer the-first-credential<nil>" {
			t.Errorf("answer %q", got)
		}
		boot = "Bearer the-second-credential"
		ask <- struct{}{}
		<-refused
		c.dispatch("d1", 2, func(p *messages.DispatchParams) { p.Generation, p.Credential = 2, "the-second-credential" })
		if got := <-answers; got != "GET /v1/data/x as Bearer the-second-credential<nil>" {
			t.Errorf("answer %q", got)
		}
		close(ask)
	})
}
