package messages

import "log/slog"

// Secret is text that must not be printed. Reveal gives it to whoever needs it.
type Secret string

// Reveal returns the text itself.
func (s Secret) Reveal() string { return string(s) }

// String hides the text from fmt.
func (Secret) String() string { return "***" }

// GoString hides the text from %#v.
func (Secret) GoString() string { return "***" }

// LogValue hides the text from slog.
func (Secret) LogValue() slog.Value { return slog.StringValue("***") }

// MarshalText hides the text from encoders.
func (Secret) MarshalText() ([]byte, error) { return []byte("***"), nil }
