package actors

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swampd/swampd/persistence"
)

// said is what one stream was sent as pieces: its lines, whole again.
func said(pieces []piece, stream string) string {
	var b strings.Builder
	for _, p := range pieces {
		if p.stream == stream {
			b.WriteString(p.line)
			if !p.partial {
				b.WriteByte('\n')
			}
		}
	}
	return b.String()
}

// written is what one stream was sent as bytes, from an offset on.
func written(chunks []persistence.Chunk, stream string, from uint64) string {
	var b strings.Builder
	for _, c := range since(chunks, from) {
		if c.Stream == stream {
			b.Write(c.Data)
		}
	}
	return b.String()
}

// since is what the journal gives from an offset on: a chunk that begins before it is cut.
func since(chunks []persistence.Chunk, from uint64) []persistence.Chunk {
	var rest []persistence.Chunk
	for _, c := range chunks {
		end := c.Offset + uint64(len(c.Data))
		if end <= from {
			continue
		}
		if c.Offset < from {
			c.Data, c.Offset = c.Data[from-c.Offset:], from
		}
		rest = append(rest, c)
	}
	return rest
}

// split runs chunks through a tail. Now and then a line that is not finished has waited long enough.
func split(chunks []persistence.Chunk, from uint64, impatient func(i int) bool) []piece {
	t := &tail{offset: from}
	var out []piece
	for i, c := range since(chunks, from) {
		out = append(out, t.take(c)...)
		if impatient(i) {
			out = append(out, t.flush(false)...)
		}
	}
	return append(out, t.flush(true)...)
}

func never(int) bool { return false }

// anyChunks draws output of both streams: valid text, cut into chunks at any byte where the stream stays the same.
func anyChunks(t *rapid.T) []persistence.Chunk {
	var chunks []persistence.Chunk
	var at uint64
	word := rapid.SampledFrom([]string{"", "a", "\n", "\n\n", "ü", "€", "😀", "\r\n", "line\n", "\x1b[31m", "\ufffd", "e\u0301"})
	for range rapid.IntRange(1, 6).Draw(t, "turns") {
		stream := rapid.SampledFrom([]string{"stdout", "stderr"}).Draw(t, "stream")
		data := []byte(strings.Join(rapid.SliceOfN(word, 1, 12).Draw(t, "words"), ""))
		for len(data) > 0 {
			n := rapid.IntRange(1, len(data)).Draw(t, "bytes")
			chunks = append(chunks, persistence.Chunk{Offset: at, Stream: stream, Data: data[:n]})
			at += uint64(n)
			data = data[n:]
		}
	}
	return chunks
}

func TestTail_TheLinesAreTheBytes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		chunks := anyChunks(t)
		pauses := rapid.SliceOfN(rapid.Bool(), len(chunks), len(chunks)).Draw(t, "pauses")
		pieces := split(chunks, 0, func(i int) bool { return pauses[i] })
		for _, stream := range []string{"stdout", "stderr"} {
			if diff := cmp.Diff(written(chunks, stream, 0), said(pieces, stream)); diff != "" {
				t.Fatalf("%s (-written +said):\n%s", stream, diff)
			}
		}
		var end uint64
		for _, p := range pieces {
			if p.end < end {
				t.Fatalf("a piece ends at %d, the one before at %d", p.end, end)
			}
			end = p.end
			if strings.Contains(p.line, "\n") || !utf8.ValidString(p.line) || len(p.line) > lineMax {
				t.Fatalf("no line: %q", p.line)
			}
		}
		if n := len(chunks); n > 0 && len(pieces) > 0 && end != chunks[n-1].Offset+uint64(len(chunks[n-1].Data)) {
			t.Fatalf("the last piece ends at %d, the output at %d", end, chunks[n-1].Offset+uint64(len(chunks[n-1].Data)))
		}
	})
}

// A follower that was cut off goes on from the end of the last piece that it saw, and misses and repeats nothing.
func TestTail_GoesOnFromTheEndOfAnyPiece(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		chunks := anyChunks(t)
		pauses := rapid.SliceOfN(rapid.Bool(), len(chunks), len(chunks)).Draw(t, "pauses")
		pieces := split(chunks, 0, func(i int) bool { return pauses[i] })
		if len(pieces) == 0 {
			return
		}
		k := rapid.IntRange(1, len(pieces)).Draw(t, "seen")
		for _, stream := range []string{"stdout", "stderr"} {
			before, after := said(pieces[:k], stream), said(split(chunks, pieces[k-1].end, never), stream)
			if diff := cmp.Diff(written(chunks, stream, 0), before+after); diff != "" {
				t.Fatalf("%s after %d pieces (-written +said):\n%s", stream, k, diff)
			}
		}
	})
}

func TestTail_ALineOfFiveMegabytesComesInPieces(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, unit string }{
		{"of one byte each", "x"}, {"of three bytes, which no piece divides", "€"}, {"of four bytes", "😀"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := strings.Repeat(tt.unit, 5_000_000/len(tt.unit)) + "\nnext\n"
			var chunks []persistence.Chunk
			for at := 0; at < len(text); at += 32 << 10 {
				chunks = append(chunks, persistence.Chunk{Offset: uint64(at), Stream: "stdout", Data: []byte(text[at:min(at+32<<10, len(text))])})
			}
			pieces := split(chunks, 0, never)
			if said(pieces, "stdout") != text {
				t.Fatal("the pieces are not the line")
			}
			for i, p := range pieces {
				if len(p.line) > lineMax || !utf8.ValidString(p.line) {
					t.Fatalf("piece %d has %d bytes", i, len(p.line))
				}
				if i%20 == 0 && said(pieces[:i+1], "stdout")+said(split(chunks, p.end, never), "stdout") != text {
					t.Fatalf("it does not go on from the end of piece %d", i)
				}
			}
			if last := pieces[len(pieces)-1]; last.partial || last.line != "next" {
				t.Errorf("the last piece is %q, partial %v", last.line, last.partial)
			}
		})
	}
}

func TestTail_WhatIsNoTextIsReplacedAndLosesNoLine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		chunks []string
		want   []string
	}{
		{"a lone byte", []string{"a\xffb\n"}, []string{"a\ufffdb"}},
		{"a character that never ends", []string{"a\xe2\x82"}, []string{"a\ufffd"}},
		{"a character over two chunks", []string{"a\xe2", "\x82\xacb\n"}, []string{"a€b"}},
		{"one that is cut by a line's end", []string{"a\xe2\nb\n"}, []string{"a\ufffd", "b"}},
		{"zero bytes", []string{"a\x00b\n"}, []string{"a\x00b"}},
		{"carriage returns stay", []string{"50%\r100%\r\n"}, []string{"50%\r100%\r"}},
		{"empty lines", []string{"\n\n"}, []string{"", ""}},
		{"no end of line", []string{"bare"}, []string{"bare"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var chunks []persistence.Chunk
			at := uint64(0)
			for _, data := range tt.chunks {
				chunks = append(chunks, persistence.Chunk{Offset: at, Stream: "stdout", Data: []byte(data)})
				at += uint64(len(data))
			}
			var got []string
			for _, p := range split(chunks, 0, never) {
				got = append(got, p.line)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTail_OnlyAnUnfinishedLineIsPartialAndTheOtherStreamComesBehindIt(t *testing.T) {
	t.Parallel()
	chunks := []persistence.Chunk{
		{Offset: 0, Stream: "stdout", Data: []byte("one\ntw")},
		{Offset: 6, Stream: "stderr", Data: []byte("err\n")},
		{Offset: 10, Stream: "stdout", Data: []byte("o\n")},
	}
	var got []string
	for _, p := range split(chunks, 0, never) {
		got = append(got, fmt.Sprintf("%s %q partial:%v end:%d", p.stream, p.line, p.partial, p.end))
	}
	want := []string{
		`stdout "one" partial:false end:4`, `stdout "tw" partial:true end:6`, `stderr "err" partial:false end:10`, `stdout "o" partial:false end:12`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pieces (-want +got):\n%s", diff)
	}
}

// The store has arbitrary bytes: nothing is longer than a frame, and the lines of a stream are in its order.
func FuzzTail(f *testing.F) {
	f.Add([]byte("one\ntwo"), uint8(3))
	f.Add([]byte("\xe2\x82\xac\xff\n\n\x00"), uint8(1))
	f.Add(bytes.Repeat([]byte("ü"), 40_000), uint8(255))
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		var chunks []persistence.Chunk
		for at := 0; at < len(data); at += int(size) + 1 {
			chunks = append(chunks, persistence.Chunk{Offset: uint64(at), Stream: "stdout", Data: data[at:min(at+int(size)+1, len(data))]})
		}
		pieces := split(chunks, 0, never)
		var end uint64
		for _, p := range pieces {
			if p.end < end || p.end > uint64(len(data)) {
				t.Fatalf("a piece ends at %d after %d, of %d", p.end, end, len(data))
			}
			end = p.end
			if !utf8.ValidString(p.line) || strings.Contains(p.line, "\n") {
				t.Fatalf("no line: %q", p.line)
			}
		}
		if utf8.Valid(data) && said(pieces, "stdout") != string(data) && said(pieces, "stdout") != string(data)+"\n" {
			t.Fatalf("%q was said as %q", data, said(pieces, "stdout"))
		}
		if got := bytes.Count(data, []byte("\n")); got != strings.Count(said(pieces, "stdout"), "\n") {
			t.Fatalf("%d lines became %d", got, strings.Count(said(pieces, "stdout"), "\n"))
		}
	})
}
