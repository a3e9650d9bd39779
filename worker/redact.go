package worker

import (
	"bytes"
	"strings"
)

const (
	// redactedText stands in for a secret.
	redactedText = "***"
	// secretBytes is the length below which a secret is not masked: one that short is found in ordinary text, and would
	// mangle it.
	secretBytes = 8
	// heldBytes is from when on the beginning of a secret at the end of what was written is held back until more comes.
	// A shorter one is not, as it is most likely none, and partial lines have to arrive.
	heldBytes = 4
)

// secrets are texts that must not leave a worker: for now the product's own tokens.
type secrets [][]byte

func newSecrets(texts ...string) secrets {
	var s secrets
	for _, t := range texts {
		if len(t) >= secretBytes {
			s = append(s, []byte(t))
		}
	}
	return s
}

// clean masks the secrets in a text.
func (s secrets) clean(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, string(secret), redactedText)
	}
	return text
}

// find returns where the first secret in p is.
func (s secrets) find(p []byte) (from, to int, ok bool) {
	for _, secret := range s {
		if i := bytes.Index(p, secret); i >= 0 && (!ok || i < from) {
			from, to, ok = i, i+len(secret), true
		}
	}
	return from, to, ok
}

// tail is the length of the longest end of p with which a secret begins.
func (s secrets) tail(p []byte) int {
	longest := 0
	for _, secret := range s {
		for n := min(len(secret)-1, len(p)); n > longest; n-- {
			if bytes.Equal(p[len(p)-n:], secret[:n]) {
				longest = n
			}
		}
	}
	return longest
}

// redactor masks secrets in one stream, also where they are cut in two by its writer. Of a secret that comes after a
// pause within its first few bytes those may have passed already; the rest is masked.
type redactor struct {
	secrets secrets
	tail    []byte // the end of what was written, where a secret may have begun
	passed  int    // bytes of tail that were let through
}

// filter returns what may pass of the stream up to now. The result is valid until the next call, and while p is.
func (r *redactor) filter(p []byte) []byte {
	if len(r.secrets) == 0 {
		return p
	}
	text, passed := p, 0
	if len(r.tail) > 0 {
		text, passed = append(append([]byte{}, r.tail...), p...), r.passed
	}
	var masked []byte
	rest := 0 // up to where text is masked or dealt with
	for {
		from, to, ok := r.secrets.find(text[rest:])
		if !ok {
			break
		}
		from, to = rest+from, rest+to
		masked = append(masked, text[max(rest, passed):max(from, passed)]...)
		masked = append(masked, redactedText...)
		rest, passed = to, max(to, passed)
	}
	n := r.secrets.tail(text[rest:])
	end := len(text)
	if n >= heldBytes {
		end -= n
	}
	begin := min(max(rest, passed), len(text))
	end = max(end, begin)
	out := text[begin:end]
	if masked != nil {
		out = append(masked, out...)
	}
	r.passed = max(0, end-(len(text)-n))
	r.tail = append(r.tail[:0], text[len(text)-n:]...)
	return out
}

// finish returns what was held back.
func (r *redactor) finish() []byte {
	out := r.tail[r.passed:]
	r.tail, r.passed = nil, 0
	return out
}
