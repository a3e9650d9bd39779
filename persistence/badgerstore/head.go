package badgerstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"

	"github.com/swampd/swampd/persistence"
)

const (
	headFile = "head"

	// Two slots in sectors of their own are written in turn, so that a torn write leaves the one before.
	slotSize   = 48
	slotStride = 512
)

// mark is what one slot of the head file holds: bounds that the store must not fall short of. After the death of the
// process it is exact, as the kernel has what was written; after a loss of power it may be older than the store.
type mark struct {
	serial uint64 // grows with each write
	head   persistence.Head
	// The MANIFEST was this long, and its content had this checksum. It only grows, but for its rare rewrites.
	manifestSize uint64
	manifestSum  uint32
	// clean: the store was closed, and nothing has touched it since. Then the bounds are exact.
	clean bool
}

func (m mark) encode() []byte {
	buf := make([]byte, slotSize)
	binary.LittleEndian.PutUint64(buf[0:], m.serial)
	binary.LittleEndian.PutUint64(buf[8:], m.head.Number)
	binary.LittleEndian.PutUint64(buf[16:], m.head.Hash)
	binary.LittleEndian.PutUint64(buf[24:], m.manifestSize)
	binary.LittleEndian.PutUint32(buf[32:], m.manifestSum)
	if m.clean {
		buf[36] = 1
	}
	binary.LittleEndian.PutUint32(buf[slotSize-4:], castagnoli(buf[:slotSize-4]))
	return buf
}

func decodeMark(buf []byte) (mark, bool) {
	if len(buf) < slotSize || binary.LittleEndian.Uint32(buf[slotSize-4:]) != castagnoli(buf[:slotSize-4]) {
		return mark{}, false
	}
	return mark{
		serial:       binary.LittleEndian.Uint64(buf[0:]),
		head:         persistence.Head{Number: binary.LittleEndian.Uint64(buf[8:]), Hash: binary.LittleEndian.Uint64(buf[16:])},
		manifestSize: binary.LittleEndian.Uint64(buf[24:]),
		manifestSum:  binary.LittleEndian.Uint32(buf[32:]),
		clean:        buf[36] == 1,
	}, true
}

func castagnoli(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// head is the head file, open. One goroutine at a time uses it.
type head struct {
	dir  string
	file *os.File
	last mark

	// The MANIFEST's size is taken over only once it has stood for a while: then Badger has synced it, and a loss of power
	// cannot leave a MANIFEST that is shorter than the mark.
	seenSize  int64
	seenSince time.Time
}

const manifestSettled = 5 * time.Second

// openHead opens the head file, or makes one; required says that a store without one is damaged.
func openHead(dir string, required bool) (*head, error) {
	path := filepath.Join(dir, headFile)
	flags := os.O_RDWR
	if !required {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &persistence.DamagedError{Dir: dir, What: headFile + " is missing", Next: whatToDoIfDamaged}
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	h := &head{dir: dir, file: f}
	found := false
	for slot := range 2 {
		buf := make([]byte, slotSize)
		n, _ := f.ReadAt(buf, int64(slot)*slotStride) // what is too short does not decode
		if m, ok := decodeMark(buf[:n]); ok && (!found || m.serial > h.last.serial) {
			h.last, found = m, true
		}
	}
	if required && !found {
		return nil, errors.Join(
			&persistence.DamagedError{Dir: dir, What: headFile + " cannot be read", Next: whatToDoIfDamaged}, f.Close())
	}
	return h, nil
}

// begin takes back, durably, that the store is cleanly closed, before anything changes in it.
func (h *head) begin() error {
	h.last.clean = false
	if err := h.write(); err != nil {
		return err
	}
	return h.sync()
}

// applied notes the head of a batch that Badger has made durable.
func (h *head) applied(last persistence.Head) error {
	h.last.head = last
	if err := h.watchManifest(time.Now()); err != nil {
		return err
	}
	return h.write()
}

// watchManifest takes the MANIFEST's length over once it has settled.
func (h *head) watchManifest(now time.Time) error {
	info, err := os.Stat(filepath.Join(h.dir, journalDir, manifestFile))
	if err != nil {
		return fmt.Errorf("look at the manifest: %w", err)
	}
	if size := info.Size(); size != h.seenSize {
		h.seenSize, h.seenSince = size, now
		if uint64(size) < h.last.manifestSize { // rewritten: the mark is of the one before
			h.last.manifestSize, h.last.manifestSum = 0, 0
		}
		return nil
	}
	if uint64(h.seenSize) == h.last.manifestSize || now.Sub(h.seenSince) < manifestSettled {
		return nil
	}
	return h.takeManifest()
}

func (h *head) takeManifest() error {
	data, err := os.ReadFile(filepath.Join(h.dir, journalDir, manifestFile))
	if err != nil {
		return fmt.Errorf("look at the manifest: %w", err)
	}
	h.last.manifestSize, h.last.manifestSum = uint64(len(data)), castagnoli(data)
	return nil
}

// closed notes, durably, that the store has been closed.
func (h *head) closed() error {
	if err := h.takeManifest(); err != nil {
		return err
	}
	h.last.clean = true
	if err := h.write(); err != nil {
		return err
	}
	return h.sync()
}

func (h *head) write() error {
	h.last.serial++
	if _, err := h.file.WriteAt(h.last.encode(), int64(h.last.serial%2)*slotStride); err != nil {
		return fmt.Errorf("write %s: %w", headFile, err)
	}
	return nil
}

func (h *head) sync() error {
	if err := h.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", headFile, err)
	}
	return syncDir(h.dir)
}
