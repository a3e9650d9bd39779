package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/gateway"
	"github.com/swampd/swampd/persistence/badgerstore"
)

// diskServer is a listener over a store on disk.
func diskServer(t testing.TB) (url string) {
	t.Helper()
	store, err := badgerstore.Open(badgerstore.Config{Dir: filepath.Join(t.TempDir(), "data")})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	system, err := actors.Start(t.Context(), actors.Config{Journal: store, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	server, err := gateway.New(gateway.Config{Listen: "127.0.0.1:0", AdminToken: dataToken, Orchestrator: system, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		ctx := context.Background()
		if err := errors.Join(server.Shutdown(ctx), <-served, system.Stop(ctx), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return "http://" + server.Addr().String()
}

// patterned is a body that is made as it is read.
type patterned struct{ left int64 }

var pattern = bytes.Repeat([]byte("0123456789abcdef"), 16<<10)

func (p *patterned) Read(b []byte) (int, error) {
	if p.left == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(int64(len(b)), p.left)], pattern)
	p.left -= int64(n)
	return n, nil
}

func upload(t testing.TB, method, url string, size int64) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, &patterned{size})
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = size
	req.Header.Set("Authorization", "Bearer "+dataToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode/100 != 2 {
		t.Fatalf("%s: %d %s (%v)", url, resp.StatusCode, body, err)
	}
}

// benchBytes is the size of the large body: SWAMP_BENCH_BYTES, or 256 MiB.
func benchBytes(t testing.TB) int64 {
	t.Helper()
	text := os.Getenv("SWAMP_BENCH_BYTES")
	if text == "" {
		return 256 << 20
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// plainServer takes bodies into synced files, as the data plane does, and nothing more.
func plainServer(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(n.Add(1))))
		if err == nil {
			_, err = io.Copy(f, r.Body)
			err = errors.Join(err, f.Sync(), f.Close())
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// BenchmarkData_Upload is the data plane beside a plain upload that syncs its file, in turn.
func BenchmarkData_Upload(b *testing.B) {
	size := benchBytes(b)
	ours, plain := diskServer(b)+"/v1/data/a", plainServer(b)
	var oursTook, plainTook time.Duration
	var peak uint64
	for b.Loop() {
		begin := time.Now()
		upload(b, http.MethodPut, plain, size)
		plainTook += time.Since(begin)
		runtime.GC()
		stop, watched := make(chan struct{}), make(chan uint64)
		go func() { watched <- peakHeap(stop) }()
		begin = time.Now()
		upload(b, http.MethodPut, ours, size)
		oursTook += time.Since(begin)
		close(stop)
		peak = max(peak, <-watched)
	}
	b.ReportMetric(float64(size)*float64(b.N)/1e6/oursTook.Seconds(), "MB/s")
	b.ReportMetric(float64(size)*float64(b.N)/1e6/plainTook.Seconds(), "plain-MB/s")
	b.ReportMetric(100*plainTook.Seconds()/oursTook.Seconds(), "%-of-plain")
	b.ReportMetric(float64(peak)/(1<<20), "heap-rise-MiB")
}

// peakHeap is how far the heap rises before stop.
func peakHeap(stop <-chan struct{}) uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	first, peak := m.HeapInuse, m.HeapInuse
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapInuse)
		case <-stop:
			return peak - first
		}
	}
}

// A body is streamed: what is allocated for it does not grow with it.
//
//nolint:paralleltest // what the whole process allocates is counted
func TestData_MemoryDoesNotGrowWithTheBody(t *testing.T) {
	url := diskServer(t) + "/v1/data/a"
	upload(t, http.MethodPut, url, 1<<20) // pools are filled
	const size = 96 << 20
	perByte := func(fn func()) float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fn()
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / size
	}
	if got := perByte(func() { upload(t, http.MethodPut, url, size) }); got > 0.5 {
		t.Errorf("a write allocates %.2f bytes for each of its body", got)
	}
	read := perByte(func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+dataToken)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil || n != size {
			t.Errorf("%d bytes: %v", n, err)
		}
	})
	if read > 0.5 {
		t.Errorf("a read allocates %.2f bytes for each of its body", read)
	}
}
