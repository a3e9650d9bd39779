package cli

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/swampd/swampd/messages"
)

// joinLimit is how much of one line, or of what waits behind one, is kept back.
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

	// long, if there is one, takes a line above the limit in pieces as they come, and line ends it. Whole lines of others
	// wait meanwhile; only if they too are above the limit is the long one broken. Without long a line above the limit
	// comes out as several.
	long    func(text string) error
	giant   *outputKey // the line that goes through long
	waiting []heldLine
	held    int // bytes in waiting
}

// heldLine is a line that waits for the end of a long one.
type heldLine struct {
	key  outputKey
	text string
}

func newJoiner(limit int, line func(outputKey, string) error) *joiner {
	return &joiner{limit: limit, line: line}
}

// add takes a piece of output.
func (j *joiner) add(e *messages.RunEvent) error {
	key := outputKeyOf(e)
	if j.giant != nil && *j.giant == key {
		if e.GetPartial() {
			return j.long(e.GetLine())
		}
		return j.endGiant(e.GetLine())
	}
	at := slices.IndexFunc(j.open, func(l *openLine) bool { return l.key == key })
	switch {
	case at < 0 && !e.GetPartial():
		return j.whole(key, e.GetLine())
	case at < 0:
		at = len(j.open)
		j.open = append(j.open, &openLine{key: key})
	}
	text := &j.open[at].text
	text.WriteString(e.GetLine())
	switch {
	case !e.GetPartial(), text.Len() >= j.limit && (j.long == nil || j.giant != nil):
		return j.end(func(k outputKey) bool { return k == key })
	case text.Len() >= j.limit:
		j.giant = &key
		j.open = slices.Delete(j.open, at, at+1)
		return j.long(text.String())
	}
	return nil
}

// whole hands out a line, or keeps it back while a long one is being printed.
func (j *joiner) whole(key outputKey, text string) error {
	if j.giant == nil {
		return j.line(key, text)
	}
	j.waiting, j.held = append(j.waiting, heldLine{key, text}), j.held+len(text)
	if j.held >= j.limit {
		return j.endGiant("")
	}
	return nil
}

// endGiant ends the long line with a last piece, and hands out what waited for that.
func (j *joiner) endGiant(last string) error {
	errs := []error{j.line(*j.giant, last)}
	for _, l := range j.waiting {
		errs = append(errs, j.line(l.key, l.text))
	}
	j.giant, j.waiting, j.held = nil, nil, 0
	return errors.Join(errs...)
}

// end finishes the open lines of those keys.
func (j *joiner) end(which func(outputKey) bool) error {
	var errs []error
	if j.giant != nil && which(*j.giant) {
		errs = append(errs, j.endGiant(""))
	}
	j.open = slices.DeleteFunc(j.open, func(l *openLine) bool {
		if !which(l.key) {
			return false
		}
		errs = append(errs, j.whole(l.key, l.text.String()))
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
