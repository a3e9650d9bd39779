package persistence

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// OutputLog holds the output of dispatches, each in a log of its own. It is safe for concurrent use.
type OutputLog interface {
	// Append adds the chunks that lie above what the log holds, cutting one that lies across, and makes them durable. It
	// tells whether the log has grown. A log that would hold output beyond the offset bound is ErrNoSpace and stays as it
	// was; so it is when the disk is full. Any other error means that the log cannot be believed.
	Append(dispatch string, chunks []Chunk, bound uint64) (grew bool, err error)
	// Read returns chunks that reach above from, in order, the first of which may begin below it. They hold at least limit
	// bytes above from, with the last one whole, unless the log ends before. There are none where there is no log.
	Read(dispatch string, from uint64, limit int) ([]Chunk, error)
	// Release lets go of what is held open for the dispatch.
	Release(dispatch string) error
	// List returns the dispatches that have a log, in order.
	List() ([]string, error)
	// Remove removes the log of the dispatch, if there is one. Who reads it just then may get the rest of it.
	Remove(dispatch string) error
	// Close ends the use of all logs.
	Close() error
}

// lowSpaceOutput is how much output of one dispatch is still taken when new work is not: what a step printed until then,
// so that its result, which needs its output, can be taken too.
const lowSpaceOutput = 64 << 10

// AppendOutput implements [Journal]. It is ErrNoSpace where little space is left and the log would hold more than 64 KiB.
func (s *Store) AppendOutput(dispatch string, chunks []Chunk) error {
	if err := s.committer.usable(); err != nil {
		return err
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	space := s.engine.Space()
	if err := space.check(ClassEnding); err != nil {
		return err
	}
	bound := uint64(1<<64 - 1)
	if space.check(ClassNewWork) != nil {
		bound = lowSpaceOutput
	}
	grew, err := s.output.Append(dispatch, chunks, bound)
	switch {
	case errors.Is(err, ErrNoSpace), errors.Is(err, ErrClosed):
		return err
	case err != nil:
		err = fmt.Errorf("append output of %q: %w", dispatch, err)
		s.committer.fail(err)
		return err
	}
	if grew {
		s.watchers.notify(dispatch)
	}
	return nil
}

// CloseOutput implements [Journal].
func (s *Store) CloseOutput(dispatch string) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if err := s.output.Release(dispatch); err != nil {
		return fmt.Errorf("close output of %q: %w", dispatch, err)
	}
	return nil
}

// Output implements [Journal].
func (s *Store) Output(dispatch string, from uint64, limit int) ([]Chunk, error) {
	if limit <= 0 {
		return nil, nil
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	logged, err := s.output.Read(dispatch, from, limit)
	if err != nil {
		return nil, fmt.Errorf("output of %q: %w", dispatch, err)
	}
	collected := collector{from: from, limit: limit}
	for _, chunk := range logged {
		collected.add(chunk)
	}
	if collected.full() {
		return collected.chunks, nil
	}
	record, err := s.Get(KindOutput, dispatch)
	if errors.Is(err, ErrNotFound) {
		return collected.chunks, nil
	}
	if err != nil {
		return nil, err
	}
	var body messages.OutputRecord
	if err := proto.Unmarshal(record.Body, &body); err != nil {
		return nil, fmt.Errorf("output record of %q: %w", dispatch, err)
	}
	for _, chunk := range body.GetChunks() {
		collected.add(Chunk{
			Offset: uint64(chunk.GetOffset()), Stream: chunk.GetStream(), Time: chunk.GetAt().AsTime(), Data: chunk.GetData(),
		})
	}
	return collected.chunks, nil
}

// collector gathers chunks from an offset on, each byte once.
type collector struct {
	from   uint64
	limit  int
	size   int
	chunks []Chunk
}

func (c *collector) full() bool { return c.size >= c.limit }

func (c *collector) add(chunk Chunk) {
	if c.full() {
		return
	}
	chunk, ok := CutChunk(chunk, c.from)
	if !ok {
		return
	}
	c.chunks = append(c.chunks, chunk)
	c.size += len(chunk.Data)
	c.from = chunk.Offset + uint64(len(chunk.Data))
}

// CutChunk returns the part of a chunk from offset on, and whether there is any.
func CutChunk(chunk Chunk, from uint64) (Chunk, bool) {
	if chunk.Offset+uint64(len(chunk.Data)) <= from {
		return Chunk{}, false
	}
	if chunk.Offset < from {
		chunk.Data = chunk.Data[from-chunk.Offset:]
		chunk.Offset = from
	}
	return chunk, true
}
