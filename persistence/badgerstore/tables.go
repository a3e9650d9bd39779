package badgerstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/y"
	"google.golang.org/protobuf/proto"
)

// tableCheck checks tables, one after the other in the same memory.
type tableCheck struct{ buf []byte }

func (c *tableCheck) read(path string) (data []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if int64(cap(c.buf)) < info.Size() {
		c.buf = make([]byte, info.Size())
	}
	data = c.buf[:info.Size()]
	_, err = io.ReadFull(f, data)
	return data, err
}

// check verifies the checksums of a table, from its end: length of the checksum, checksum of the index, length of the
// index, index; and of each block. Badger does it too, but where the lengths are damaged it panics, in a goroutine of its
// own, and that is the end of the process.
func (c *tableCheck) check(path string) error {
	data, err := c.read(path)
	if err != nil {
		return err
	}
	footer := tail{data}
	sum, err := footer.checksum()
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	length, err := footer.length()
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	index, err := footer.take(length)
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	if err := y.VerifyChecksum(index, sum); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	blocks := fb.GetRootAsTableIndex(index, 0)
	if blocks.OffsetsLength() == 0 {
		return errors.New("no blocks")
	}
	for i := range blocks.OffsetsLength() {
		var at fb.BlockOffset
		if !blocks.Offsets(&at, i) {
			return fmt.Errorf("block %d: not in the index", i)
		}
		from, to := uint64(at.Offset()), uint64(at.Offset())+uint64(at.Len())
		if to > uint64(len(footer.data)) {
			return fmt.Errorf("block %d: beyond the end", i)
		}
		block := tail{footer.data[from:to]}
		sum, err := block.checksum()
		if err != nil {
			return fmt.Errorf("block %d: %w", i, err)
		}
		if err := y.VerifyChecksum(block.data, sum); err != nil {
			return fmt.Errorf("block %d: %w", i, err)
		}
	}
	return nil
}

// tail reads from the end of data.
type tail struct{ data []byte }

func (t *tail) take(n int) ([]byte, error) {
	at := len(t.data) - n
	if n < 0 || at < 0 {
		return nil, errors.New("too short")
	}
	taken := t.data[at:]
	t.data = t.data[:at]
	return taken, nil
}

func (t *tail) length() (int, error) {
	b, err := t.take(4)
	if err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(b)
	if uint64(n) > uint64(len(t.data)) {
		return 0, errors.New("too short")
	}
	return int(n), nil
}

func (t *tail) checksum() (*pb.Checksum, error) {
	n, err := t.length()
	if err != nil {
		return nil, err
	}
	b, err := t.take(n)
	if err != nil {
		return nil, err
	}
	sum := new(pb.Checksum)
	if err := proto.Unmarshal(b, sum); err != nil {
		return nil, fmt.Errorf("checksum: %w", err)
	}
	switch sum.GetAlgo() {
	case pb.Checksum_CRC32C, pb.Checksum_XXHash64: // y panics at others
		return sum, nil
	default:
		return nil, errors.New("unknown kind of checksum")
	}
}
