package journaltest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

func at(seconds int64) time.Time { return time.Unix(seconds, 500).UTC() }

func chunk(offset uint64, stream, data string) persistence.Chunk {
	return persistence.Chunk{Offset: offset, Stream: stream, Time: at(int64(offset)), Data: []byte(data)}
}

func appendOutput(t testing.TB, j persistence.Journal, dispatch string, chunks ...persistence.Chunk) {
	t.Helper()
	if err := j.AppendOutput(dispatch, chunks); err != nil {
		t.Fatalf("append output: %v", err)
	}
}

// output reads from an offset to the end, in pages of limit.
func output(t testing.TB, j persistence.Journal, dispatch string, from uint64, limit int) []persistence.Chunk {
	t.Helper()
	var all []persistence.Chunk
	for {
		page, err := j.Output(dispatch, from, limit)
		if err != nil {
			t.Fatalf("output: %v", err)
		}
		if len(page) == 0 {
			return all
		}
		for _, c := range page {
			if c.Offset < from {
				t.Fatalf("chunk at %d, %d was due", c.Offset, from)
			}
			from = c.Offset + uint64(len(c.Data))
		}
		all = append(all, page...)
	}
}

func text(chunks []persistence.Chunk) string {
	var b bytes.Buffer
	for _, c := range chunks {
		b.Write(c.Data)
	}
	return b.String()
}

func outputRecord(t testing.TB, j persistence.Journal, dispatch string, chunks ...persistence.Chunk) {
	t.Helper()
	var body messages.OutputRecord
	for _, c := range chunks {
		body.Chunks = append(body.Chunks, &messages.OutputChunk{
			Offset: uint32(c.Offset), Stream: c.Stream, At: timestamppb.New(c.Time), Data: c.Data,
		})
	}
	encoded, err := proto.Marshal(&body)
	if err != nil {
		t.Fatal(err)
	}
	commit(t, j, puts(persistence.Put{Kind: persistence.KindOutput, ID: dispatch, Body: encoded}))
}

func outputTests() []test {
	return []test{
		on("output comes back as it was appended", func(t *testing.T, j persistence.Journal) {
			want := []persistence.Chunk{chunk(0, "stdout", "hello "), chunk(6, "stderr", "wor\x00ld\xff"), chunk(13, "stdout", "!")}
			appendOutput(t, j, "d", want[:2]...)
			appendOutput(t, j, "d", want[2])
			if diff := cmp.Diff(want, output(t, j, "d", 0, 1000)); diff != "" {
				t.Error(diff)
			}
			if got := output(t, j, "other", 0, 1000); len(got) != 0 {
				t.Errorf("output of another dispatch: %v", got)
			}
		}),
		on("what the log holds already is dropped, and what lies across is cut", func(t *testing.T, j persistence.Journal) {
			appendOutput(t, j, "d", chunk(0, "stdout", "abcdef"))
			appendOutput(t, j, "d", chunk(0, "stdout", "ABC"), chunk(3, "stdout", "DEF"))
			appendOutput(t, j, "d", chunk(4, "stdout", "EFgh"), chunk(8, "stdout", "ij"))
			if got := text(output(t, j, "d", 0, 1000)); got != "abcdefghij" {
				t.Errorf("got %q", got)
			}
		}),
		on("a chunk that begins before the offset is cut", func(t *testing.T, j persistence.Journal) {
			appendOutput(t, j, "d", chunk(0, "stdout", "abcdef"), chunk(6, "stderr", "ghijkl"))
			for from := range uint64(13) {
				if got := text(output(t, j, "d", from, 1000)); got != "abcdefghijkl"[from:] {
					t.Errorf("from %d: %q", from, got)
				}
			}
			got, err := j.Output("d", 100, 1000)
			if err != nil || len(got) != 0 {
				t.Errorf("beyond the end: %v, %v", got, err)
			}
		}),
		on("a page ends at about its limit, and the pages are the whole", func(t *testing.T, j persistence.Journal) {
			var want bytes.Buffer
			for i := range 300 {
				data := bytes.Repeat([]byte{byte(i)}, 1+i%70)
				appendOutput(t, j, "d", chunk(uint64(want.Len()), "stdout", string(data)))
				want.Write(data)
			}
			for _, limit := range []int{1, 100, 4096, 1 << 20} {
				if got := text(output(t, j, "d", 0, limit)); got != want.String() {
					t.Errorf("pages of %d: %d of %d bytes", limit, len(got), want.Len())
				}
				page, err := j.Output("d", 0, limit)
				if n := len(text(page)); err != nil || n > limit+70 {
					t.Errorf("a page of %d has %d bytes: %v", limit, n, err)
				}
			}
			if page, err := j.Output("d", 0, 0); err != nil || len(page) != 0 {
				t.Errorf("a page of nothing: %v, %v", page, err)
			}
		}),
		on("a chunk of any size is kept", func(t *testing.T, j persistence.Journal) {
			data := bytes.Repeat([]byte("0123456789"), 300_000)
			appendOutput(t, j, "d", chunk(0, "stdout", "x"), chunk(1, "stdout", string(data)))
			if got := text(output(t, j, "d", 0, 1<<20)); got != "x"+string(data) {
				t.Errorf("%d bytes", len(got))
			}
		}),
		on("the output record continues the log", func(t *testing.T, j persistence.Journal) {
			appendOutput(t, j, "d", chunk(0, "stdout", "abc"))
			outputRecord(t, j, "d", chunk(0, "stdout", "ABCd"), chunk(4, "stderr", "ef"))
			for from := range uint64(7) {
				for _, limit := range []int{1, 2, 100} {
					if got := text(output(t, j, "d", from, limit)); got != "abcdef"[from:] {
						t.Errorf("from %d by %d: %q", from, limit, got)
					}
				}
			}
		}),
		on("the output record may be all there is", func(t *testing.T, j persistence.Journal) {
			want := []persistence.Chunk{chunk(0, "stdout", "abc"), chunk(3, "stderr", "def")}
			outputRecord(t, j, "d", want...)
			if diff := cmp.Diff(want, output(t, j, "d", 0, 100)); diff != "" {
				t.Error(diff)
			}
		}),
		on("an output log may be let go of and used again", func(t *testing.T, j persistence.Journal) {
			if err := j.CloseOutput("d"); err != nil {
				t.Error(err)
			}
			for i := range 3 {
				appendOutput(t, j, "d", chunk(uint64(i), "stdout", fmt.Sprint(i)))
				if err := j.CloseOutput("d"); err != nil {
					t.Error(err)
				}
			}
			if got := text(output(t, j, "d", 0, 100)); got != "012" {
				t.Errorf("got %q", got)
			}
		}),
		{"output outlives the process", func(t *testing.T, h Harness) {
			j := h.Open(t)
			names := []string{"d", "D", "a/b", "..", ".", "%41", "A", string(bytes.Repeat([]byte("long/"), 100)), "\x00\xff"}
			for round := range 3 {
				for _, name := range names {
					appendOutput(t, j, name, chunk(uint64(round*len(name)), "stdout", name))
				}
				j = h.Reopen(t, j)
			}
			for _, name := range names {
				if got := text(output(t, j, name, 0, 1<<20)); got != name+name+name {
					t.Errorf("output of %q is %q", name, got)
				}
			}
		}},
		on("a watcher hears of a log and of a record, coalesced, and of the close", func(t *testing.T, j persistence.Journal) {
			watch := j.WatchOutput()
			defer watch.Close()
			watch.Add("d")
			watch.Add("e")
			watch.Add("e") // again is once
			told := func(want ...string) {
				t.Helper()
				if len(want) > 0 {
					<-watch.Grown()
				}
				select {
				case <-watch.Grown():
					t.Fatal("a value without growth")
				default:
				}
				if got := watch.Take(); !slices.Equal(got, want) {
					t.Fatalf("%q have grown, want %q", got, want)
				}
			}
			told()
			appendOutput(t, j, "other", chunk(0, "stdout", "a"))
			told()
			appendOutput(t, j, "d", chunk(0, "stdout", "a"))
			appendOutput(t, j, "d", chunk(1, "stdout", "b"))
			appendOutput(t, j, "e", chunk(0, "stdout", "b"))
			told("d", "e")
			appendOutput(t, j, "d", chunk(0, "stdout", "ab"))
			told()
			outputRecord(t, j, "d", chunk(2, "stdout", "c"))
			told("d")
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			<-watch.Grown()
		}),
		on("a watch that was stopped hears nothing", func(t *testing.T, j persistence.Journal) {
			watch, closed := j.WatchOutput(), j.WatchOutput()
			for _, w := range []*persistence.OutputWatch{watch, closed} {
				w.Add("d")
				w.Add("e")
			}
			watch.Remove("d")
			watch.Remove("d")
			closed.Close()
			closed.Close()
			appendOutput(t, j, "e", chunk(0, "stdout", "a"))
			watch.Remove("e")
			<-watch.Grown()
			appendOutput(t, j, "d", chunk(0, "stdout", "a"))
			for _, w := range []*persistence.OutputWatch{watch, closed} {
				select {
				case <-w.Grown():
					t.Error("a value")
				default:
				}
				if got := w.Take(); len(got) > 0 {
					t.Errorf("%q have grown, and nothing is watched", got)
				}
			}
		}),
		on("logs grow and are read at the same time", func(t *testing.T, j persistence.Journal) {
			const dispatches, chunks = 8, 25
			var wg sync.WaitGroup
			for d := range dispatches {
				name := fmt.Sprint("d", d)
				watch := j.WatchOutput()
				watch.Add(name)
				wg.Go(func() {
					for i := range chunks {
						if err := j.AppendOutput(name, []persistence.Chunk{chunk(uint64(i*10), "stdout", fmt.Sprintf("%d-%08d", d, i))}); err != nil {
							t.Error(err)
						}
					}
				})
				wg.Go(func() {
					defer watch.Close()
					for at := uint64(0); at < chunks*10; {
						page, err := j.Output(name, at, 64)
						if err != nil {
							t.Error(err)
							return
						}
						for _, c := range page {
							if want := fmt.Sprintf("%d-%08d", d, at/10); string(c.Data) != want || c.Offset != at {
								t.Errorf("%q at %d, %q was due", c.Data, c.Offset, want)
								return
							}
							at += 10
						}
						if len(page) == 0 {
							<-watch.Grown()
						}
					}
				})
			}
			wg.Wait()
		}),
		{"appends, repeats, reads and restarts at random: the output is the output", outputProperty},
		on("after the close there is only ErrClosed", func(t *testing.T, j persistence.Journal) {
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			if err := j.AppendOutput("d", []persistence.Chunk{chunk(0, "stdout", "a")}); !errors.Is(err, persistence.ErrClosed) {
				t.Errorf("append: %v", err)
			}
			if _, err := j.Output("d", 0, 10); !errors.Is(err, persistence.ErrClosed) {
				t.Errorf("read: %v", err)
			}
		}),
	}
}

// outputProperty holds a journal against a string.
func outputProperty(t *testing.T, h Harness) {
	j := h.Open(t)
	round := 0
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		round++
		dispatch := fmt.Sprint("d", round)
		var want []byte
		for range rapid.IntRange(1, 12).Draw(t, "actions") {
			switch rapid.IntRange(0, 9).Draw(t, "action") {
			case 0:
				if err := j.CloseOutput(dispatch); err != nil {
					t.Fatal(err)
				}
			case 1:
				if round%20 == 0 { // a restart costs more than all the rest
					j = h.Reopen(outer, j)
				}
			default:
				// A worker sends again what was not acknowledged, and perhaps in other pieces.
				again := rapid.IntRange(0, min(20, len(want))).Draw(t, "again")
				fresh := rapid.SliceOfN(rapid.Byte(), 0, 2000).Draw(t, "fresh")
				from := len(want) - again
				want = append(want, fresh...)
				var chunks []persistence.Chunk
				for _, piece := range slices.Collect(slices.Chunk(want[from:], rapid.IntRange(1, 700).Draw(t, "piece"))) {
					chunks = append(chunks, chunk(uint64(from), "stdout", string(piece)))
					from += len(piece)
				}
				if err := j.AppendOutput(dispatch, chunks); err != nil {
					t.Fatal(err)
				}
			}
			from := rapid.IntRange(0, len(want)).Draw(t, "from")
			if got := text(output(outer, j, dispatch, uint64(from), rapid.IntRange(1, 3000).Draw(t, "limit"))); got != string(want[from:]) {
				t.Fatalf("from %d: %d bytes, %d were due, or others", from, len(got), len(want)-from)
			}
		}
	})
}
