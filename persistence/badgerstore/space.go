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

// endings is how much the ends of all that runs may need.
const endings = 32 << 20

// space watches the free space. The file system is asked before each batch, which costs about a microsecond: an answer that
// is older is none, since somebody else may fill a disk faster than any interval, and Badger writes through mapped memory,
// where a full disk is SIGBUS.
type space struct {
	dir    string
	ask    func(dir string) (uint64, error)
	marks  Marks
	logger *slog.Logger

	mu      sync.Mutex
	ballast *ballast
	level   level
	free    uint64
	failing bool
}

func newSpace(config Config) *space {
	return &space{
		dir: config.Dir, ask: config.FreeSpace, marks: config.Marks, logger: config.Logger, free: math.MaxUint64, ballast: newBallast(config),
	}
}

// level is how much is refused.
type level int

const (
	levelAll     level = iota // nothing is
	levelNoWork               // new work
	levelEndings              // all but endings
	levelNothing              // everything
)

func (m Marks) level(free uint64) level {
	switch {
	case free < m.Hard:
		return levelNothing
	case free < m.Data:
		return levelEndings
	case free < m.NewWork:
		return levelNoWork
	default:
		return levelAll
	}
}

// tell says when what is refused has changed.
func (s *space) tell() {
	l := s.marks.level(s.free)
	if l == s.level {
		return
	}
	text := map[level]string{
		levelAll:     "there is enough free space again",
		levelNoWork:  "free space runs short: new work is refused",
		levelEndings: "free space runs short: all but ends and cancels is refused",
		levelNothing: "there is no free space left: everything is refused",
	}[l]
	log := s.logger.Warn
	if l == levelAll {
		log = s.logger.Info
	}
	s.level = l
	log(text, messages.KeyDir, s.dir, messages.KeyFree, s.free, messages.KeyNeeded, s.marks.NewWork)
}

func (s *space) report() persistence.Space {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.look()
	switch {
	case s.free < s.marks.Data && s.ballast.giveUp():
		s.look()
		s.logger.Warn("the reserve of space was given up", messages.KeyDir, s.dir, messages.KeyFree, s.free)
	case s.free >= s.marks.NewWork && s.free-s.marks.NewWork >= uint64(max(s.ballast.size, 0)):
		s.ballast.make(time.Now())
	}
	s.tell()
	return persistence.Space{Free: s.free, NewWork: s.marks.NewWork, Data: s.marks.Data, Hard: s.marks.Hard}
}

// look asks the file system.
func (s *space) look() {
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

// close ends what is under way. Nothing is asked after it.
func (s *space) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ballast.close()
}
