package badgerstore

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/swampd/swampd/persistence"
)

// writeUntilKilled is the process that TestKill kills: many writers, each of which says what has been acknowledged.
func writeUntilKilled(dir string) {
	s, err := Open(Config{Dir: dir})
	if err != nil {
		fmt.Println("refused:", err)
		os.Exit(1)
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for {
				id := fmt.Sprintf("r%016x", s.Sequence())
				_, err := s.Commit(context.Background(), persistence.Commit{
					Puts:    []persistence.Put{{Kind: persistence.KindRun, ID: id, State: "running", Body: make([]byte, 12_000)}},
					Appends: []persistence.Append{{Stream: "all", Body: []byte(id)}},
				})
				if err != nil {
					fmt.Println("failed:", err)
					os.Exit(1)
				}
				if err := s.AppendOutput(id, []persistence.Chunk{{Stream: "stdout", Data: []byte(id)}}); err != nil {
					fmt.Println("failed:", err)
					os.Exit(1)
				}
				// One write of one short line: it arrives whole or not at all.
				_, _ = os.Stdout.WriteString("acknowledged: " + id + "\n")
			}
		})
	}
	wg.Wait()
}

// TestKill kills a writing process at any moment, again and again on the same store. No death is damage, and nothing that
// was acknowledged is missing.
func TestKill_NothingAcknowledgedIsLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	acknowledged := map[string]bool{}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 5 {
		process := exec.CommandContext(t.Context(), self)
		process.Env = append(os.Environ(), killDir+"="+dir)
		out, err := process.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		enough := 1 + random.IntN(1200) // some 14 MB: up to two tables are written meanwhile
		for n := 0; lines.Scan(); n++ {
			id, ok := strings.CutPrefix(lines.Text(), "acknowledged: ")
			if !ok {
				t.Errorf("round %d: the writer says %q", round, lines.Text())
			} else {
				acknowledged[id] = true
			}
			if n == enough {
				if err := process.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = process.Wait() // it was killed
		if t.Failed() {
			return
		}
	}
	s := open(t, dir)
	there := map[string]bool{}
	for _, id := range runs(t, s) {
		there[id] = true
	}
	for id := range acknowledged {
		if !there[id] {
			t.Errorf("%s is missing", id)
		}
		chunks, err := s.Output(id, 0, 100)
		if err != nil || len(chunks) != 1 || string(chunks[0].Data) != id {
			t.Errorf("output of %s: %v, %v", id, chunks, err)
		}
	}
	for after, more := uint64(0), true; more; {
		events, err := s.Events("all", after, 500)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			after++
			if e.Seq != after || !there[string(e.Body)] {
				t.Fatalf("event %d is %q, %d was due", e.Seq, e.Body, after)
			}
		}
		if more = len(events) > 0; !more && after != uint64(len(there)) {
			t.Errorf("%d events, %d runs", after, len(there))
		}
	}
	if s.Quarantined() != 0 {
		t.Errorf("%d in quarantine", s.Quarantined())
	}
}
