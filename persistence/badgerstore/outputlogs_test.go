package badgerstore

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/swampd/swampd/persistence"
)

func logs(t *testing.T, keep int) *outputLogs {
	t.Helper()
	return reopenLogs(t, filepath.Join(t.TempDir(), outputDir), keep)
}

// reopenLogs is the next process.
func reopenLogs(t *testing.T, dir string, keep int) *outputLogs {
	t.Helper()
	o, err := openOutputLogs(dir, keep, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

const unbounded = 1<<64 - 1

func appendText(t testing.TB, o *outputLogs, dispatch string, offset int, data string) {
	t.Helper()
	_, err := o.Append(dispatch, []persistence.Chunk{
		{Offset: uint64(offset), Stream: "stdout", Time: time.Unix(1, 0), Data: []byte(data)},
	}, unbounded)
	if err != nil {
		t.Fatal(err)
	}
}

func readText(t testing.TB, o *outputLogs, dispatch string, from int) string {
	t.Helper()
	chunks, err := o.Read(dispatch, uint64(from), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for i, c := range chunks {
		if c, ok := persistence.CutChunk(c, uint64(from)); ok {
			b.Write(c.Data)
		} else {
			t.Fatalf("chunk %d lies below %d", i, from)
		}
	}
	return b.String()
}

func TestOutputLog_ATornEndIsCutAtAnyByte(t *testing.T) {
	t.Parallel()
	o := logs(t, 10)
	appendText(t, o, "d", 0, "first")
	appendText(t, o, "d", 5, "second")
	path := o.path("d")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	firstSize := frameHeader + frameFixed + len("stdout") + len("first")
	for n := range len(data) + 1 {
		dir := filepath.Join(t.TempDir(), outputDir)
		torn := &outputLogs{dir: dir}
		if err := os.MkdirAll(filepath.Dir(torn.path("d")), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(torn.path("d"), data[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		want := ""
		if n >= firstSize {
			want = "first"
		}
		if n == len(data) {
			want = "firstsecond"
		}
		next := reopenLogs(t, dir, 10)
		if got := readText(t, next, "d", 0); got != want {
			t.Fatalf("cut at %d: %q, not %q", n, got, want)
		}
		// A read cuts nothing, a write does, and goes on behind what is whole.
		appendText(t, next, "d", len(want), "third")
		if got := readText(t, reopenLogs(t, dir, 10), "d", 0); got != want+"third" {
			t.Fatalf("cut at %d and continued: %q", n, got)
		}
	}
}

func TestOutputLog_WhatIsDamagedIsNotGivenOut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		o := reopenLogs(t, filepath.Join(dir, outputDir), 10)
		var want string
		for i := range rapid.IntRange(1, 5).Draw(rt, "chunks") {
			piece := strings.Repeat(fmt.Sprint(i), rapid.IntRange(1, 50).Draw(rt, "size"))
			appendText(t, o, "d", len(want), piece)
			want += piece
		}
		path := o.path("d")
		data, err := os.ReadFile(path)
		if err != nil {
			rt.Fatal(err)
		}
		data[rapid.IntRange(0, len(data)-1).Draw(rt, "at")] ^= rapid.ByteMin(1).Draw(rt, "flip")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			rt.Fatal(err)
		}
		got := readText(t, reopenLogs(t, filepath.Join(dir, outputDir), 10), "d", 0)
		if !strings.HasPrefix(want, got) || len(got) == len(want) {
			rt.Fatalf("%q out of %q", got, want)
		}
	})
}

func TestOutputLog_ARotThatComesLaterIsAnErrorOfItsReader(t *testing.T) {
	t.Parallel()
	o := logs(t, 10)
	appendText(t, o, "d", 0, "first")
	path := o.path("d")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if chunks, err := o.Read("d", 0, 100); err == nil {
		t.Errorf("read %v", chunks)
	}
}

func TestOutputLog_TheBoundRefusesAllOrNothing(t *testing.T) {
	t.Parallel()
	o := logs(t, 10)
	appendText(t, o, "d", 0, "12345")
	chunk := func(offset uint64, data string) persistence.Chunk {
		return persistence.Chunk{Offset: offset, Data: []byte(data)}
	}
	_, err := o.Append("d", []persistence.Chunk{chunk(5, "678"), chunk(8, "9")}, 8)
	if !errors.Is(err, persistence.ErrNoSpace) {
		t.Errorf("append: %v", err)
	}
	if got := readText(t, o, "d", 0); got != "12345" {
		t.Errorf("got %q", got)
	}
	if grew, err := o.Append("d", []persistence.Chunk{chunk(5, "678")}, 8); err != nil || !grew {
		t.Errorf("append up to the bound: %v, %v", grew, err)
	}
	if grew, err := o.Append("d", []persistence.Chunk{chunk(0, "12345678")}, 1); err != nil || grew {
		t.Errorf("a repeat beyond the bound: %v, %v", grew, err)
	}
}

func TestOutputLogs_OnlySoManyStayOpen(t *testing.T) {
	t.Parallel()
	const keep = 4
	o := logs(t, keep)
	open := func() int {
		o.mu.Lock()
		defer o.mu.Unlock()
		if len(o.byName) != o.recent.Len() {
			t.Errorf("%d by name, %d by use", len(o.byName), o.recent.Len())
		}
		return o.recent.Len()
	}
	for round := range 3 {
		for d := range 20 {
			appendText(t, o, fmt.Sprint(d), round, fmt.Sprint(round))
			if n := open(); n > keep {
				t.Fatalf("%d logs are open", n)
			}
		}
	}
	for d := range 20 {
		if got := readText(t, o, fmt.Sprint(d), 0); got != "012" {
			t.Errorf("%d: %q", d, got)
		}
		if err := o.Release(fmt.Sprint(d)); err != nil {
			t.Error(err)
		}
	}
	if _, err := o.Read("not there", 0, 10); err != nil {
		t.Error(err)
	}
	if n := open(); n > keep-1 {
		t.Errorf("%d logs are open after the last was let go", n)
	}
}

func TestOutputLogs_UseByManyWithFewOpen(t *testing.T) {
	t.Parallel()
	o := logs(t, 2)
	const dispatches, chunks = 12, 20
	all := "abcdefghijklmnopqrst"[:chunks]
	var wg sync.WaitGroup
	for d := range dispatches {
		name := fmt.Sprint("d", d)
		wg.Go(func() {
			for i := range chunks {
				appendText(t, o, name, i, string(rune('a'+i)))
				if i%5 == 0 {
					if err := o.Release(name); err != nil {
						t.Error(err)
					}
				}
			}
		})
		wg.Go(func() {
			for range chunks {
				if got := readText(t, o, name, 0); !strings.HasPrefix(all, got) {
					t.Errorf("%q", got)
				}
			}
		})
	}
	wg.Wait()
	for d := range dispatches {
		if got := readText(t, o, fmt.Sprint("d", d), 0); got != all {
			t.Errorf("%d: %q", d, got)
		}
	}
}

func TestOutputLogs_NamesNeverMeet(t *testing.T) {
	t.Parallel()
	o := &outputLogs{dir: "x"}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) string {
			return rapid.OneOf(rapid.String(), rapid.StringMatching(`[aA%./]{0,5}`), rapid.StringN(190, 260, -1)).Draw(t, label)
		}
		a, b := draw("a"), draw("b")
		pa, pb := o.path(a), o.path(b)
		if a != b && strings.EqualFold(pa, pb) {
			t.Fatalf("%q and %q are both %s", a, b, pa)
		}
		if rel, err := filepath.Rel("x", pa); err != nil || strings.Count(rel, string(filepath.Separator)) != 1 || strings.HasPrefix(rel, "..") {
			t.Fatalf("%q is %s", a, pa)
		}
		if len(filepath.Base(pa)) > 255 {
			t.Fatalf("the file name of %q has %d bytes", a, len(filepath.Base(pa)))
		}
	})
}

func TestOutputLog_AReadFromAnOffsetDoesNotReadTheFile(t *testing.T) {
	t.Parallel()
	o := logs(t, 10)
	const piece, pieces = 8 << 10, 400
	data := strings.Repeat("x", piece)
	var chunks []persistence.Chunk
	for i := range pieces {
		chunks = append(chunks, persistence.Chunk{Offset: uint64(i * piece), Stream: "stdout", Data: []byte(data)})
	}
	if _, err := o.Append("d", chunks, unbounded); err != nil {
		t.Fatal(err)
	}
	for _, o := range []*outputLogs{o, reopenLogs(t, o.dir, 10)} {
		l, err := o.acquire("d")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.read(0, 1); err != nil {
			t.Fatal(err)
		}
		l.mu.Lock()
		last := int64(0)
		for _, p := range append(l.index, place{at: l.size}) {
			if step := p.at - last; step > indexStep+piece+1024 {
				t.Errorf("%d bytes lie between two entries of the index", step)
			}
			last = p.at
		}
		l.mu.Unlock()
		if err := o.giveBack(l); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzFrameReader(f *testing.F) {
	f.Add(appendFrame(nil, persistence.Chunk{Offset: 3, Stream: "stderr", Time: time.Unix(1, 0), Data: []byte("data")}))
	f.Fuzz(func(t *testing.T, data []byte) {
		frames := newFrameReader(bytes.NewReader(data))
		read := int64(0)
		for {
			chunk, size, err := frames.next()
			if err != nil {
				return
			}
			again := appendFrame(nil, chunk)
			if read+size > int64(len(data)) || !bytes.Equal(again, data[read:read+size]) {
				t.Fatalf("%x is read as %+v", data[read:], chunk)
			}
			read += size
		}
	})
}
