package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swampd/swampd/gateway"
	"github.com/swampd/swampd/testkit"
)

// pipeListener is a listener without a network, for virtual time.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error { l.once.Do(func() { close(l.closed) }); return nil }

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

// A body may take as long as it likes, but not stand still.
func TestData_ABodyThatStandsStillIsCut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pause  time.Duration
		status int
		code   string
	}{{25 * time.Second, 201, ""}, {31 * time.Second, 408, "unavailable"}} {
		t.Run(tt.pause.String(), func(t *testing.T) {
			t.Parallel()
			testkit.Bubble(t, func(t *testing.T) {
				f := testkit.Start(t)
				l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
				server, err := gateway.New(gateway.Config{
					Listener: l, AdminToken: dataToken, Orchestrator: f.System(), Logger: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				served := make(chan error, 1)
				go func() { served <- server.Serve() }()
				ours, theirs := net.Pipe()
				l.conns <- theirs
				go func() {
					_, _ = fmt.Fprintf(ours, "PUT /v1/data/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 10\r\n\r\n", dataToken)
					for range 10 {
						time.Sleep(tt.pause)
						_, _ = io.WriteString(ours, "x") // it may have been cut
					}
				}()
				resp, err := http.ReadResponse(bufio.NewReader(ours), nil)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != tt.status || !strings.Contains(string(body), tt.code) {
					t.Errorf("a body with pauses of %s: %d %s (%v), want %d %s", tt.pause, resp.StatusCode, body, err, tt.status, tt.code)
				}
				_ = ours.Close()
				if err := server.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
				if err := <-served; err != nil {
					t.Error(err)
				}
				time.Sleep(10 * tt.pause) // whoever wrote has ended
			})
		})
	}
}
