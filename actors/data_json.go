package actors

import "github.com/swampd/swampd/messages"

// jsonCheck tells whether what is written to it piece by piece is one JSON document, as encoding/json would take it, however
// large it is: all that it remembers is what is open around the place where it is.
type jsonCheck struct {
	at     jsonPlace
	open   []byte // '{' or '[', from the outside in
	offset uint64
	word   string // what is left of true, false or null
	digits int    // still to come of a \u
	key    bool   // the string is a name in an object
}

// jsonPlace is what may come next.
type jsonPlace int

const (
	jsonValue       jsonPlace = iota // a value
	jsonFirstOrEnd                   // in an array: a value, or its end
	jsonNameOrEnd                    // in an object: a name, or its end
	jsonName                         // a name
	jsonColon                        // the colon behind a name
	jsonAfter                        // behind a value
	jsonString                       // within a string
	jsonEscape                       // behind a backslash
	jsonHex                          // within a \u
	jsonWord                         // within true, false or null
	jsonMinus                        // behind a minus
	jsonZero                         // behind a leading zero
	jsonDigits                       // within the digits before a point
	jsonPoint                        // behind a point
	jsonFraction                     // within the digits after it
	jsonExponent                     // behind an e
	jsonExponentSig                  // behind its sign
	jsonExponentNum                  // within its digits
)

// maxJSONDepth bounds how deep arrays and objects may stand in each other, as encoding/json does.
const maxJSONDepth = 10_000

func newJSONCheck() *jsonCheck { return &jsonCheck{} }

func (j *jsonCheck) fail() error {
	return messages.Faultf(messages.CodeInvalid, "the body is no valid JSON, from byte %d on", j.offset)
}

// write takes the next piece.
func (j *jsonCheck) write(p []byte) error {
	for i := 0; i < len(p); i++ {
		if j.at == jsonString { // most of most documents
			for i < len(p) && p[i] != '"' && p[i] != '\\' && p[i] >= 0x20 {
				i++
				j.offset++
			}
			if i == len(p) {
				return nil
			}
		}
		if !j.take(p[i]) {
			return j.fail()
		}
		j.offset++
	}
	return nil
}

// end is the end of the document.
func (j *jsonCheck) end() error {
	if j.inNumber() {
		j.at = jsonAfter
	}
	if j.at != jsonAfter || len(j.open) > 0 {
		return messages.Faultf(messages.CodeInvalid, "the body is no valid JSON: it ends after %d bytes within a value", j.offset)
	}
	return nil
}

func (j *jsonCheck) inNumber() bool {
	return j.at == jsonZero || j.at == jsonDigits || j.at == jsonFraction || j.at == jsonExponentNum
}

// take takes one byte. It is false where that cannot stand there.
func (j *jsonCheck) take(c byte) bool {
	if j.inNumber() && !numberByte(c) { // its end is seen by what follows it
		j.at = jsonAfter
	}
	switch j.at {
	case jsonString, jsonEscape, jsonHex:
		return j.inString(c)
	case jsonWord:
		if c != j.word[0] {
			return false
		}
		if j.word = j.word[1:]; j.word == "" {
			j.at = jsonAfter
		}
		return true
	case jsonMinus, jsonZero, jsonDigits, jsonPoint, jsonFraction, jsonExponent, jsonExponentSig, jsonExponentNum:
		return j.number(c)
	default:
	}
	if c == ' ' || c == '\t' || c == '\n' || c == '\r' {
		return true
	}
	switch j.at {
	case jsonValue:
		return j.value(c)
	case jsonFirstOrEnd:
		return c == ']' && j.leave('[') || c != ']' && j.value(c)
	case jsonNameOrEnd:
		return c == '}' && j.leave('{') || c == '"' && j.name()
	case jsonName:
		return c == '"' && j.name()
	case jsonColon:
		j.at = jsonValue
		return c == ':'
	default:
		return j.after(c)
	}
}

func (j *jsonCheck) name() bool {
	j.at, j.key = jsonString, true
	return true
}

// value takes the first byte of a value.
func (j *jsonCheck) value(c byte) bool {
	switch {
	case c == '"':
		j.at, j.key = jsonString, false
	case c == '{':
		j.at = jsonNameOrEnd
		return j.enter(c)
	case c == '[':
		j.at = jsonFirstOrEnd
		return j.enter(c)
	case c == 't':
		j.at, j.word = jsonWord, "true"[1:]
	case c == 'f':
		j.at, j.word = jsonWord, "false"[1:]
	case c == 'n':
		j.at, j.word = jsonWord, "null"[1:]
	case c == '-':
		j.at = jsonMinus
	case c == '0':
		j.at = jsonZero
	case c >= '1' && c <= '9':
		j.at = jsonDigits
	default:
		return false
	}
	return true
}

func (j *jsonCheck) enter(c byte) bool {
	j.open = append(j.open, c)
	return len(j.open) <= maxJSONDepth
}

func (j *jsonCheck) leave(c byte) bool {
	if len(j.open) == 0 || j.open[len(j.open)-1] != c {
		return false
	}
	j.open = j.open[:len(j.open)-1]
	j.at = jsonAfter
	return true
}

// after takes what follows a value.
func (j *jsonCheck) after(c byte) bool {
	if len(j.open) == 0 {
		return false
	}
	inObject := j.open[len(j.open)-1] == '{'
	switch {
	case c == ',' && inObject:
		j.at = jsonName
	case c == ',':
		j.at = jsonValue
	case c == '}':
		return j.leave('{')
	case c == ']':
		return j.leave('[')
	default:
		return false
	}
	return true
}

func (j *jsonCheck) inString(c byte) bool {
	switch {
	case j.at == jsonHex:
		if j.digits--; j.digits == 0 {
			j.at = jsonString
		}
		return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
	case j.at == jsonEscape:
		j.at = jsonString
		switch c {
		case 'u':
			j.at, j.digits = jsonHex, 4
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		default:
			return false
		}
	case c == '\\':
		j.at = jsonEscape
	case c == '"' && j.key:
		j.at = jsonColon
	case c == '"':
		j.at = jsonAfter
	default:
		return c >= 0x20
	}
	return true
}

func numberByte(c byte) bool {
	return c >= '0' && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'
}

// number takes the next byte of a number.
func (j *jsonCheck) number(c byte) bool {
	digit := c >= '0' && c <= '9'
	exponent := c == 'e' || c == 'E'
	switch at := j.at; {
	case at == jsonMinus && c == '0':
		j.at = jsonZero
	case (at == jsonMinus || at == jsonDigits) && digit:
		j.at = jsonDigits
	case (at == jsonZero || at == jsonDigits) && c == '.':
		j.at = jsonPoint
	case (at == jsonPoint || at == jsonFraction) && digit:
		j.at = jsonFraction
	case (at == jsonZero || at == jsonDigits || at == jsonFraction) && exponent:
		j.at = jsonExponent
	case at == jsonExponent && (c == '+' || c == '-'):
		j.at = jsonExponentSig
	case (at == jsonExponent || at == jsonExponentSig || at == jsonExponentNum) && digit:
		j.at = jsonExponentNum
	default:
		return false
	}
	return true
}
