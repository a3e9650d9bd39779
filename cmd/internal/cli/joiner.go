package cli

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/swampd/swampd/messages"
)

// joinLimit is how much of one line is kept back. What is longer is printed as it comes.
const joinLimit = 1 << 20

// outputKey is one stream of one dispatch of a step: what arrives under it in pieces is one text.
type outputKey struct{ step, dispatch, stream string }

func outputKeyOf(e *messages.RunEvent) outputKey {
	return outputKey{stepKey(e), e.GetDispatchId(), e.GetStream()}
}

// openLine is a line whose end has not come.
type openLine struct {
	key  outputKey
	text bytes.Buffer
}

// joiner makes whole lines of pieces. Lines come out in the order in which they end.
type joiner struct {
	open  []*openLine // in the order in which they began
	limit int
	// line takes a line without its end.
	line func(key outputKey, text string) error
}

func newJoiner(limit int, line func(outputKey, string) error) *joiner {
	return &joiner{limit: limit, line: line}
}

// add takes a piece of output.
func (j *joiner) add(e *messages.RunEvent) error {
	key := outputKeyOf(e)
	at := slices.IndexFunc(j.open, func(l *openLine) bool { return l.key == key })
	switch {
	case at < 0 && !e.GetPartial():
		return j.line(key, e.GetLine())
	case at < 0:
		at = len(j.open)
		j.open = append(j.open, &openLine{key: key})
	}
	j.open[at].text.WriteString(e.GetLine())
	if !e.GetPartial() || j.open[at].text.Len() >= j.limit {
		return j.end(func(k outputKey) bool { return k == key })
	}
	return nil
}

// end finishes the open lines of those keys.
func (j *joiner) end(which func(outputKey) bool) error {
	var errs []error
	j.open = slices.DeleteFunc(j.open, func(l *openLine) bool {
		if !which(l.key) {
			return false
		}
		errs = append(errs, j.line(l.key, l.text.String()))
		return true
	})
	return errors.Join(errs...)
}

// endStep finishes the lines that a step left open.
func (j *joiner) endStep(step string) error {
	return j.end(func(k outputKey) bool { return k.step == step })
}

// endAll finishes every open line.
func (j *joiner) endAll() error {
	return j.end(func(outputKey) bool { return true })
}

// liveJoiner prints pieces at once. Where another stream comes in between, the unfinished line is broken: whoever
// watches wants to see it now.
type liveJoiner struct {
	w      io.Writer
	clean  func(string) string
	open   outputKey
	isOpen bool
}

func (j *liveJoiner) add(e *messages.RunEvent) error {
	key := outputKeyOf(e)
	text := j.clean(e.GetLine())
	if j.isOpen && j.open != key {
		text = "\n" + text
	}
	j.isOpen, j.open = e.GetPartial(), key
	if !e.GetPartial() {
		text += "\n"
	}
	_, err := io.WriteString(j.w, text)
	return err
}

// end finishes the line that is open.
func (j *liveJoiner) end() error {
	if !j.isOpen {
		return nil
	}
	j.isOpen = false
	_, err := io.WriteString(j.w, "\n")
	return err
}
