package badgerstore

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/swampd/swampd/persistence"
)

// BenchmarkFsync is the floor: what one small synchronous write costs on this disk. The commits are to be read beside it.
func BenchmarkFsync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "f"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			b.Error(err)
		}
	}()
	buf := make([]byte, 600)
	for at := int64(0); b.Loop(); at += int64(len(buf)) {
		if _, err := f.WriteAt(buf, at); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCommit is the birth of a step with its lease and its event, as a run commits it, by so many at once.
func BenchmarkCommit(b *testing.B) {
	for _, committers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("committers=%d", committers), func(b *testing.B) {
			s := benchStore(b)
			var next atomic.Int64
			share(b, committers, func() error {
				id := fmt.Sprintf("run-%012d", next.Add(1))
				_, err := s.Commit(b.Context(), persistence.Commit{
					Puts: []persistence.Put{
						{Kind: persistence.KindRun, ID: id, State: "running", Body: make([]byte, 200)},
						{Kind: persistence.KindLease, ID: id, State: "active", Body: make([]byte, 200)},
					},
					Appends: []persistence.Append{{Stream: id, Body: make([]byte, 100), New: true}},
				})
				return err
			})
			stats := s.Stats()
			b.ReportMetric(float64(stats.Commits)/float64(stats.Syncs), "commits/sync")
		})
	}
}

// BenchmarkReplace is the life of a record: each commit replaces a version and appends to a stream that goes on.
func BenchmarkReplace(b *testing.B) {
	for _, committers := range []int{1, 64} {
		b.Run(fmt.Sprintf("committers=%d", committers), func(b *testing.B) {
			s := benchStore(b)
			var names atomic.Int64
			versions := sync.Pool{New: func() any {
				return &persistence.Put{Kind: persistence.KindRun, ID: fmt.Sprintf("run-%012d", names.Add(1)), State: "running", Body: make([]byte, 200)}
			}}
			share(b, committers, func() error {
				p := versions.Get().(*persistence.Put)
				defer versions.Put(p)
				_, err := s.Commit(b.Context(), persistence.Commit{
					Puts: []persistence.Put{*p}, Appends: []persistence.Append{{Stream: p.ID, Body: p.Body[:100]}},
				})
				p.Expect++
				return err
			})
		})
	}
}

// BenchmarkOutput is a chunk of 32 KiB made durable in its log.
func BenchmarkOutput(b *testing.B) {
	s := benchStore(b)
	data := make([]byte, 32<<10)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for at := uint64(0); b.Loop(); at += uint64(len(data)) {
		if err := s.AppendOutput("d", []persistence.Chunk{{Offset: at, Stream: "stdout", Data: data}}); err != nil {
			b.Fatal(err)
		}
	}
}

func benchStore(b *testing.B) *Store {
	b.Helper()
	s, err := Open(Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

// share lets n goroutines do b.N times do.
func share(b *testing.B, n int, do func() error) {
	b.Helper()
	b.ReportAllocs()
	b.ResetTimer()
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}
