package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"unicode/utf8"
)

// The limits of what a step may put into $SWAMP_OUTPUT.
const (
	MaxOutputBytes      = 1 << 20  // the whole file
	MaxOutputValueBytes = 64 << 10 // one value
	maxOutputNameBytes  = 128
)

// outputsTooLargeError says which limit was passed. It has a code of its own.
type outputsTooLargeError struct{ text string }

func (e *outputsTooLargeError) Error() string { return e.text }

// outputsCode is the code of a step that fails with an error of readOutputs, parseOutputs or checkOutputs.
func outputsCode(err error) string {
	if tooLarge := (*outputsTooLargeError)(nil); errors.As(err, &tooLarge) {
		return CodeOutputTooLarge
	}
	return CodeInternal
}

// readOutputs reads and parses the file at path. A step that removed it has no outputs. The step may have put anything
// else in its place, so that only a regular file is read, and never more of it than the limit.
func readOutputs(path string) (map[string]string, error) {
	f, err := openOutputs(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read $SWAMP_OUTPUT: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read $SWAMP_OUTPUT: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("$SWAMP_OUTPUT is no regular file any more")
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxOutputBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read $SWAMP_OUTPUT: %w", err)
	}
	return parseOutputs(data)
}

// parseOutputs reads the language of $SWAMP_OUTPUT: lines "name=value", and
//
//	name<<EOF
//	several lines
//	EOF
//
// with any word in place of EOF. Empty lines between them are skipped, one carriage return at the end of a line is
// dropped, and a name that comes again replaces its value.
func parseOutputs(data []byte) (map[string]string, error) {
	if len(data) > MaxOutputBytes {
		return nil, &outputsTooLargeError{fmt.Sprintf("$SWAMP_OUTPUT holds more than %d bytes", MaxOutputBytes)}
	}
	outputs := make(map[string]string)
	lines := outputLines{rest: data}
	for {
		line, ok := lines.next()
		if !ok {
			return outputs, nil
		}
		if len(line) == 0 {
			continue
		}
		first := lines.number
		assign, here := bytes.IndexByte(line, '='), bytes.Index(line, []byte("<<"))
		var name, value []byte
		switch {
		case here >= 0 && (assign < 0 || here < assign):
			name = line[:here]
			var err error
			if value, err = lines.until(line[here+2:]); err != nil {
				return nil, fmt.Errorf("line %d of $SWAMP_OUTPUT: %w", first, err)
			}
		case assign >= 0:
			name, value = line[:assign], line[assign+1:]
		default:
			return nil, fmt.Errorf("line %d of $SWAMP_OUTPUT is neither name=value nor name<<WORD", first)
		}
		if err := checkOutput(string(name), value); err != nil {
			return nil, fmt.Errorf("line %d of $SWAMP_OUTPUT: %w", first, err)
		}
		outputs[string(name)] = string(value)
	}
}

// checkOutputs holds what a Go model returned to the limits of $SWAMP_OUTPUT.
func checkOutputs(outputs map[string]string) error {
	total := 0
	for name, value := range outputs {
		if err := checkOutput(name, []byte(value)); err != nil {
			return err
		}
		total += len(name) + len(value)
	}
	if total > MaxOutputBytes {
		return &outputsTooLargeError{fmt.Sprintf("the outputs hold more than %d bytes", MaxOutputBytes)}
	}
	return nil
}

func checkOutput(name string, value []byte) error {
	switch {
	case !outputName(name):
		return fmt.Errorf("%q is no name of an output (letters, digits, '_', '-' and '.', at most %d)", clip(name), maxOutputNameBytes)
	case len(value) > MaxOutputValueBytes:
		return &outputsTooLargeError{fmt.Sprintf("the value of output '%s' holds more than %d bytes", name, MaxOutputValueBytes)}
	case !utf8.Valid(value):
		// Outputs travel and are stored as text.
		return fmt.Errorf("the value of output '%s' is not UTF-8", name)
	}
	return nil
}

func outputName(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || (c < '0' || c > '9') && c != '-' && c != '.') {
			return false
		}
	}
	return name != "" && len(name) <= maxOutputNameBytes
}

// clip bounds what an error repeats of a step's bytes.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// outputLines cuts data into lines and counts them.
type outputLines struct {
	rest   []byte
	number int
}

func (l *outputLines) next() (line []byte, ok bool) {
	if len(l.rest) == 0 {
		return nil, false
	}
	line, l.rest, _ = bytes.Cut(l.rest, []byte("\n"))
	l.number++
	return bytes.TrimSuffix(line, []byte("\r")), true
}

// until returns the lines before the one that is word.
func (l *outputLines) until(word []byte) ([]byte, error) {
	if len(bytes.TrimSpace(word)) == 0 {
		return nil, errors.New("no word follows '<<'")
	}
	var value []byte
	for n := 0; ; n++ {
		line, ok := l.next()
		if !ok {
			return nil, fmt.Errorf("no line %q ends the value", clip(string(word)))
		}
		if bytes.Equal(line, word) {
			return value, nil
		}
		if n > 0 {
			value = append(value, '\n')
		}
		value = append(value, line...)
	}
}
