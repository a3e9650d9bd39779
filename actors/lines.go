package actors

import (
	"bytes"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swampd/swampd/persistence"
)

// lineMax is the longest piece of a line that is sent at once.
const lineMax = 64 << 10

// tail splits one dispatch's output into lines, in the order of its bytes. At most one unfinished line is held back: one
// of the other stream goes out first, so that the end of each piece is a place to go on from.
type tail struct {
	dispatch, job, step string
	offset              uint64 // of the next chunk to read
	held                []byte
	stream              string // of what is held
	at                  time.Time
	aged                bool
}

// piece is a line, or a part of one.
type piece struct {
	stream, line string
	partial      bool
	end          uint64 // the offset after it
	at           time.Time
}

// take splits a chunk, and returns what can go out.
func (t *tail) take(c persistence.Chunk) []piece {
	var out []piece
	if c.Stream != t.stream && len(t.held) > 0 {
		out = append(out, t.flush(true)...)
	}
	t.stream, t.at = c.Stream, c.Time
	at := c.Offset
	data := c.Data
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		at += uint64(i + 1)
		line := slices.Concat(t.held, data[:i])
		out = append(out, cut(line, c.Stream, at, c.Time, false)...)
		t.held = nil
		data = data[i+1:]
	}
	t.held = append(t.held, data...)
	t.offset = c.Offset + uint64(len(c.Data))
	t.aged = false
	if len(t.held) >= lineMax {
		out = append(out, t.flush(false)...)
	}
	return out
}

// flush gives out what is held. Unless all has to go, the beginning of a character stays for its end.
func (t *tail) flush(all bool) []piece {
	keep := 0
	if !all {
		keep = incomplete(t.held)
	}
	n := len(t.held) - keep
	if n <= 0 {
		return nil
	}
	out := cut(t.held[:n], t.stream, t.offset-uint64(keep), t.at, true)
	t.held = append([]byte(nil), t.held[n:]...)
	return out
}

// cut makes pieces of at most lineMax of a line. The last is partial if the line goes on.
func cut(line []byte, stream string, end uint64, at time.Time, goesOn bool) []piece {
	var out []piece
	newline := uint64(1)
	if goesOn {
		newline = 0
	}
	for len(line) > lineMax {
		n := lineMax - incomplete(line[:lineMax])
		rest := uint64(len(line)-n) + newline
		out = append(out, piece{stream, text(line[:n]), true, end - rest, at})
		line = line[n:]
	}
	return append(out, piece{stream, text(line), goesOn, end, at})
}

// text is bytes as JSON can carry them: what is no UTF-8 is replaced. The store keeps the bytes.
func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// incomplete is how many bytes at the end of b begin a character that is not complete.
func incomplete(b []byte) int {
	for n := 1; n <= 3 && n <= len(b); n++ {
		c := b[len(b)-n]
		if utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}
