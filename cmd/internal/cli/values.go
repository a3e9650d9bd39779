package cli

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/swampd/swampd/messages"
)

// parseDuration reads Go's durations, "d" for days at the front, and a bare number of seconds.
func parseDuration(s string) (time.Duration, error) {
	bad := errors.New("want a duration such as 90s, 5m, 1h30m or 2d, or a number of seconds")
	if seconds, err := strconv.ParseFloat(s, 64); err == nil {
		return scaled(seconds, time.Second, bad)
	}
	var days time.Duration
	if number, rest, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return 0, bad
		}
		if days, err = scaled(n, 24*time.Hour, bad); err != nil || rest == "" {
			return days, err
		}
		s = rest
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, bad
	case d < 0:
		return 0, errors.New("it is negative")
	case days > math.MaxInt64-d:
		return 0, errors.New("it is too long")
	}
	return days + d, nil
}

func scaled(n float64, unit time.Duration, bad error) (time.Duration, error) {
	switch {
	case math.IsNaN(n) || math.IsInf(n, 0):
		return 0, bad
	case n < 0:
		return 0, errors.New("it is negative")
	case n*float64(unit) > math.MaxInt64/2: // half of what fits, so that sums do
		return 0, errors.New("it is too long")
	}
	return time.Duration(math.Round(n * float64(unit))), nil
}

// formatDuration writes a duration as a person would give it.
func formatDuration(d time.Duration) string {
	s := d.String()
	if d%time.Second == 0 && d < 2*time.Minute {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// durationValue is a flag with a duration of at least min.
type durationValue struct {
	d   time.Duration
	min time.Duration
}

func (v *durationValue) Set(s string) error {
	d, err := parseDuration(s)
	if err != nil {
		return err
	}
	if d < v.min {
		return fmt.Errorf("the least is %s", formatDuration(v.min))
	}
	v.d = d
	return nil
}

func (v *durationValue) String() string { return formatDuration(v.d) }
func (*durationValue) Type() string     { return "DURATION" }

// choiceValue is a flag with one of a few words.
type choiceValue struct {
	value string
	from  []string
}

func (v *choiceValue) Set(s string) error {
	if !slices.Contains(v.from, s) {
		return fmt.Errorf("want %s", strings.Join(v.from, ", "))
	}
	v.value = s
	return nil
}

func (v *choiceValue) String() string { return v.value }
func (v *choiceValue) Type() string   { return strings.Join(v.from, "|") }

// labelsValue is a repeated flag k=v; its variable is comma-separated.
type labelsValue struct{ labels map[string]string }

func (v *labelsValue) Set(s string) error {
	key, value, ok := strings.Cut(s, "=")
	if !ok {
		return errors.New("want KEY=VALUE")
	}
	if err := checkLabel(key, value); err != nil {
		return err
	}
	if v.labels == nil {
		v.labels = map[string]string{}
	}
	v.labels[key] = value
	return nil
}

func (v *labelsValue) setVariable(s string) error {
	return setEach(s, v.Set)
}

func (v *labelsValue) String() string {
	list := make([]string, 0, len(v.labels))
	for _, key := range slices.Sorted(maps.Keys(v.labels)) {
		list = append(list, key+"="+v.labels[key])
	}
	return strings.Join(list, ",")
}

func (*labelsValue) Type() string { return "KEY=VALUE" }

// checkLabel holds a label to the rules of the contract.
func checkLabel(key, value string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9._/-]{1,63}$`).MatchString(key) {
		return fmt.Errorf("label key %q: want 1 to 63 of A-Z a-z 0-9 . _ / -", key)
	}
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if len(value) > 255 || !utf8.ValidString(value) || strings.ContainsFunc(value, unprintable) {
		return fmt.Errorf("value of label %s: want at most 255 printable bytes", key)
	}
	return nil
}

// patternsValue is a repeated flag with patterns of names; its variable is comma-separated.
type patternsValue struct{ patterns []string }

func (v *patternsValue) Set(s string) error {
	if s == "" || strings.ContainsAny(s, "=/") {
		return errors.New("want the name of a variable, with * and ? for any others")
	}
	if _, err := path.Match(s, ""); err != nil {
		return err
	}
	v.patterns = append(v.patterns, s)
	return nil
}

func (v *patternsValue) setVariable(s string) error { return setEach(s, v.Set) }
func (v *patternsValue) String() string             { return strings.Join(v.patterns, ",") }
func (*patternsValue) Type() string                 { return "PATTERN" }

func setEach(list string, set func(string) error) error {
	for part := range strings.SplitSeq(list, ",") {
		if err := set(strings.TrimSpace(part)); err != nil {
			return err
		}
	}
	return nil
}

// countValue is a flag with a number from min to max, or a word that stands for another number.
type countValue struct {
	n        int
	min, max int
	word     string
	wordIs   int
	isWord   bool
}

func (v *countValue) Set(s string) error {
	if v.word != "" && s == v.word {
		v.n, v.isWord = v.wordIs, true
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < v.min || n > v.max {
		want := fmt.Sprintf("want a number from %d to %d", v.min, v.max)
		if v.word != "" {
			want += ", or " + v.word
		}
		return errors.New(want)
	}
	v.n, v.isWord = n, false
	return nil
}

func (v *countValue) String() string {
	if v.isWord {
		return v.word
	}
	return strconv.Itoa(v.n)
}

func (v *countValue) Type() string {
	if v.word != "" {
		return "N|" + v.word
	}
	return "N"
}

// concurrencyValue is the capacity of a worker; auto is the number of processors.
func concurrencyValue() *countValue {
	return &countValue{n: 1, min: 1, max: 10000, word: "auto", wordIs: runtime.NumCPU()}
}

// secretValue is a flag whose value is never shown.
type secretValue struct{ secret messages.Secret }

func (v *secretValue) Set(s string) error {
	v.secret = messages.Secret(s)
	return nil
}

func (v *secretValue) String() string {
	if v.secret == "" {
		return ""
	}
	return v.secret.String()
}

func (*secretValue) Type() string { return "TOKEN" }
