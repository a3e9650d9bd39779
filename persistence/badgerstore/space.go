package badgerstore

import (
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// Marks are amounts of free space, in bytes. Below NewWork no new work is taken, below Data endings only, below Hard
// nothing. A full disk is no error for Badger but the death of the process, and of the next one too.
type Marks struct {
	NewWork, Data, Hard uint64
}

// DefaultMarks leave Badger room for what it has begun: two memtables and their logs, and two compactions of the first
// levels.
func DefaultMarks() Marks {
	const hard = 4*memTableSize + 64<<20
	return Marks{NewWork: 4 * hard, Data: 2 * hard, Hard: hard}
}

const (
	// The file system is asked again after this time, or after this much has been written.
	spaceAge   = 250 * time.Millisecond
	spaceBytes = 4 << 20
)

// space knows about the free space without asking for each batch.
type space struct {
	dir    string
	ask    func(dir string) (uint64, error)
	marks  Marks
	logger *slog.Logger

	mu      sync.Mutex
	free    uint64
	asked   time.Time
	written int
	failing bool
}

func newSpace(config Config) *space {
	return &space{dir: config.Dir, ask: config.FreeSpace, marks: config.Marks, logger: config.Logger, free: math.MaxUint64}
}

func (s *space) report() persistence.Space {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.asked.IsZero() || now.Sub(s.asked) >= spaceAge || s.written >= spaceBytes {
		s.asked, s.written = now, 0
		free, err := s.ask(s.dir)
		switch {
		case err == nil:
			s.free, s.failing = free, false
		case !s.failing:
			// The last answer stands: not to know is no reason to refuse everything.
			s.failing = true
			s.logger.Warn("free space cannot be read", messages.KeyDir, s.dir, messages.KeyErr, err)
		}
	}
	return persistence.Space{Free: s.free, NewWork: s.marks.NewWork, Data: s.marks.Data, Hard: s.marks.Hard}
}

func (s *space) used(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written += n
}
