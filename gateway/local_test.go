package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
)

func TestDialLocal_ReachesTheSameRoutesUntilShutdown(t *testing.T) {
	t.Parallel()
	f := serve(t, newFake(), nil)
	s := f.server
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.DialLocal(ctx) },
	}
	t.Cleanup(transport.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://orchestrator/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%d %s %v", resp.StatusCode, body, err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if c, err := s.DialLocal(t.Context()); !errors.Is(err, net.ErrClosed) {
		_ = c.Close()
		t.Errorf("after the shutdown: %v", err)
	}
}
