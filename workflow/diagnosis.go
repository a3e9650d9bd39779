package workflow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxDiagnoses   = 100 // more than anybody reads; a hostile file could have half a million
	maxQuoted      = 64  // characters of the file's own text in a sentence
	maxSourceBytes = 512 // of the line that a diagnosis shows
)

// Diagnosis is one thing that is wrong, or odd, at one place of a workflow file.
type Diagnosis struct {
	// File is the name given to Parse.
	File string
	// Line and Column count from 1. A column is a character, not a byte; a tab is one.
	Line, Column int
	// Text is one sentence.
	Text string
	// Source is the line itself without its line end, at most its first 512 bytes.
	Source string
}

// String is one line: FILE:LINE:COL: text.
func (d Diagnosis) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", printable(d.File), d.Line, d.Column, d.Text)
}

// Detail is the diagnosis with its source line and a caret below the place, for people. It ends with a line end.
func (d Diagnosis) Detail() string {
	var b strings.Builder
	b.WriteString(d.String())
	b.WriteByte('\n')
	before, rest := splitColumns(d.Source, d.Column-1)
	if d.Source == "" || (rest == "" && utf8.RuneCountInString(before) < d.Column-1) {
		return b.String() // the place is beyond what is kept of the line
	}
	number := fmt.Sprint(d.Line)
	fmt.Fprintf(&b, "  %s | %s\n", number, printable(d.Source))
	pad := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, before)
	fmt.Fprintf(&b, "  %*s | %s^\n", len(number), "", pad)
	return b.String()
}

// Diagnoses is the error of Parse: everything that is wrong with a file, in file order.
type Diagnoses []Diagnosis

// Error is one String per line.
func (d Diagnoses) Error() string {
	lines := make([]string, len(d))
	for i := range d {
		lines[i] = d[i].String()
	}
	return strings.Join(lines, "\n")
}

// Detail shows every diagnosis with its source line and a caret, for people.
func (d Diagnoses) Detail() string {
	var b strings.Builder
	for i := range d {
		b.WriteString(d[i].Detail())
	}
	return b.String()
}

// finding is a diagnosis before its place is worked out, which only a file with errors needs.
type finding struct {
	at   int // offset in the source
	text string
}

// findings gathers what is found in one file.
type findings struct {
	list    []finding
	dropped int
}

func (f *findings) add(at int, format string, args ...any) {
	if !f.drop() {
		f.list = append(f.list, finding{at, fmt.Sprintf(format, args...)})
	}
}

// drop tells whether there are so many findings that the next one is only counted, and counts it then. Whoever has
// work with the wording of a finding asks first.
func (f *findings) drop() bool {
	if len(f.list) < maxDiagnoses {
		return false
	}
	f.dropped++
	return true
}

// diagnoses works out lines and columns.
func (f *findings) diagnoses(file, src string) []Diagnosis {
	if len(f.list) == 0 {
		return nil
	}
	slices.SortStableFunc(f.list, func(a, b finding) int { return cmp.Compare(a.at, b.at) })
	found := make([]Diagnosis, 0, len(f.list)+1)
	line, start := 1, 0
	for _, e := range f.list {
		at := min(e.at, len(src))
		line += strings.Count(src[start:at], "\n")
		if i := strings.LastIndexByte(src[start:at], '\n'); i >= 0 {
			start += i + 1
		}
		found = append(found, Diagnosis{
			File: file, Line: line, Column: utf8.RuneCountInString(src[start:at]) + 1,
			Text: e.text, Source: sourceLine(src[start:]),
		})
	}
	if f.dropped > 0 {
		last := found[len(found)-1]
		last.Text = fmt.Sprintf("%d errors are shown, there are %d more", maxDiagnoses, f.dropped)
		found = append(found, last)
	}
	return found
}

// sourceLine is the first line of s, bounded.
func sourceLine(s string) string {
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	if len(s) <= maxSourceBytes {
		return s
	}
	cut := maxSourceBytes
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}

// splitColumns cuts s after n characters.
func splitColumns(s string, n int) (before, rest string) {
	for i := range s {
		if n <= 0 {
			return s[:i], s[i:]
		}
		n--
	}
	return s, ""
}

// quote puts a piece of the file into a sentence: in quotes, short, and harmless to a terminal.
func quote(s string) string {
	if strings.ContainsRune(s, '\n') {
		s = strings.ReplaceAll(s, "\n", `\n`)
	}
	if utf8.RuneCountInString(s) > maxQuoted {
		s, _ = splitColumns(s, maxQuoted)
		s += "…"
	}
	return "'" + printable(s) + "'"
}

// printable replaces what would break a line or command a terminal. Tabs stay.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, s)
}
