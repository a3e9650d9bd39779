package cli

import (
	"io"
	"log/slog"
)

// newLogger makes the logger of a daemon. level and format are words that the flags have checked.
func newLogger(w io.Writer, level, format string) *slog.Logger {
	options := &slog.HandlerOptions{}
	switch level {
	case "debug":
		options.Level = slog.LevelDebug
	case "warn":
		options.Level = slog.LevelWarn
	case "error":
		options.Level = slog.LevelError
	default:
		options.Level = slog.LevelInfo
	}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

func logLevel() choiceValue {
	return choiceValue{"info", []string{"debug", "info", "warn", "error"}}
}
