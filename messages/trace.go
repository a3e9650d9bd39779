package messages

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// A run's trace and the spans in it are derived from their ids, so that everybody who knows a run knows its trace, and
// nothing has to be kept for it. They have the form of W3C Trace Context.

// TraceID is the trace id of a run: its id, where that is a UUID, else a digest of it.
func TraceID(run string) string {
	plain := strings.ToLower(strings.ReplaceAll(run, "-", ""))
	if raw, err := hex.DecodeString(plain); err == nil && len(raw) == 16 && strings.Trim(plain, "0") != "" {
		return plain
	}
	return traceDigest(run, 16)
}

// SpanID is the span id of something in a run: a dispatch by its id, a step by its key, the run by its own id.
func SpanID(of string) string { return traceDigest("span "+of, 8) }

// Traceparent is the header that says that something is a part of a dispatch of a run.
func Traceparent(run, dispatch string) string {
	return "00-" + TraceID(run) + "-" + SpanID(dispatch) + "-01"
}

// ValidTraceparent tells whether text has the form of one, and is safe in an environment and a header.
func ValidTraceparent(text string) bool {
	parts := strings.Split(text, "-")
	if len(parts) != 4 {
		return false
	}
	for i, n := range [4]int{2, 32, 16, 2} {
		if len(parts[i]) != n || strings.Trim(parts[i], "0123456789abcdef") != "" {
			return false
		}
	}
	return parts[0] != "ff" && strings.Trim(parts[1], "0") != "" && strings.Trim(parts[2], "0") != ""
}

// traceDigest is the first n bytes of the SHA-256 of text. All zeros are no id, and do not occur.
func traceDigest(text string, n int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:n])
}
