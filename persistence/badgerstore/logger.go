package badgerstore

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/swampd/swampd/messages"
)

// engineLogger passes on what Badger says. Its news is of interest to a person with a problem only.
type engineLogger struct {
	logger *slog.Logger
	// opened: until then every error comes back from Open too, which says it in one line.
	opened atomic.Bool
}

// wants keeps what nobody reads from being formatted: Badger talks a lot.
func (l *engineLogger) wants(level slog.Level) bool {
	return l.logger.Enabled(context.Background(), level)
}

func text(format string, args []any) string { return strings.TrimSpace(fmt.Sprintf(format, args...)) }

func (l *engineLogger) Errorf(format string, args ...any) {
	level := slog.LevelDebug
	if l.opened.Load() {
		level = slog.LevelWarn
	}
	if l.wants(level) {
		l.logger.Log(context.Background(), level, "journal engine reports an error", messages.KeyErr, text(format, args))
	}
}

func (l *engineLogger) Warningf(format string, args ...any) {
	l.logger.Warn("journal engine warns", messages.KeyErr, text(format, args))
}

func (l *engineLogger) Infof(format string, args ...any) {
	if l.wants(slog.LevelDebug) {
		l.logger.Debug("journal engine reports", messages.KeyReason, text(format, args))
	}
}

func (l *engineLogger) Debugf(format string, args ...any) {
	if l.wants(slog.LevelDebug) {
		l.logger.Debug("journal engine details", messages.KeyReason, text(format, args))
	}
}
