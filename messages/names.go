package messages

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckName tells what is wrong with the name of a token or worker, if anything is.
func CheckName(s string) error {
	ok := func(c byte, first bool) bool {
		return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || (!first && (c == '.' || c == '_' || c == '-'))
	}
	valid := s != "" && len(s) <= 64
	for i := 0; valid && i < len(s); i++ {
		valid = ok(s[i], i == 0)
	}
	if !valid {
		return fmt.Errorf("name %q is not 1 to 64 of a-z, 0-9, '.', '_' and '-', the first a letter or digit", s)
	}
	if s == "loopback" || s == "all" {
		return fmt.Errorf("name %q is reserved", s)
	}
	return nil
}

// CheckLabel tells what is wrong with a label, if anything is.
func CheckLabel(key, value string) error {
	valid := key != "" && len(key) <= 63
	for i := 0; valid && i < len(key); i++ {
		c := key[i]
		valid = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._/-", c) >= 0
	}
	if !valid {
		return fmt.Errorf("label key %q is not 1 to 63 of letters, digits, '.', '_', '/' and '-'", key)
	}
	if len(value) > 255 || !utf8.ValidString(value) || strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("value of label %s is not printable text of at most 255 bytes", key)
	}
	return nil
}
