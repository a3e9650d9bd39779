package badgerstore

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/swampd/swampd/messages"
)

// engineLogger passes on what Badger says. Its news is of interest to a person with a problem only, and its errors come
// back as errors too.
type engineLogger struct{ logger *slog.Logger }

func (l engineLogger) text(format string, args []any) error {
	return fmt.Errorf("%s", strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (l engineLogger) Errorf(format string, args ...any) {
	l.logger.Warn("journal engine reports an error", messages.KeyErr, l.text(format, args))
}

func (l engineLogger) Warningf(format string, args ...any) {
	l.logger.Warn("journal engine warns", messages.KeyErr, l.text(format, args))
}

func (l engineLogger) Infof(format string, args ...any) {
	l.logger.Debug("journal engine reports", messages.KeyReason, l.text(format, args))
}

func (l engineLogger) Debugf(format string, args ...any) {
	l.logger.Debug("journal engine details", messages.KeyReason, l.text(format, args))
}
