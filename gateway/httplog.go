package gateway

import (
	"context"
	"log/slog"
	"strings"

	"github.com/swampd/swampd/messages"
)

// httpLog takes the lines of the HTTP server. Most of them tell of clients that left or spoke nonsense; that connections
// cannot be accepted, for want of file descriptors, is for a person.
type httpLog struct{ log *slog.Logger }

// Write implements io.Writer for one line.
func (h httpLog) Write(line []byte) (int, error) {
	text, level := strings.TrimSpace(string(line)), slog.LevelDebug
	if strings.HasPrefix(text, "http: Accept error") {
		level = slog.LevelWarn
	}
	h.log.Log(context.Background(), level, "the HTTP server complains", slog.String(messages.KeyErr, text))
	return len(line), nil
}
