package actors

import (
	"bufio"
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// backupChunk is how much of a backup goes into one frame.
const backupChunk = 256 << 10

// backup streams what the journal holds now. The client's reading sets the pace; the actors go on meanwhile.
func (sys *System) backup(ctx context.Context, emit Emit) (proto.Message, error) {
	if emit == nil {
		return nil, messages.Faultf(messages.CodeInvalid, "this verb streams")
	}
	out := bufio.NewWriterSize(chunkWriter(func(p []byte) error {
		return emit(&messages.Event{Event: &messages.Event_Backup{Backup: &messages.BackupChunk{Data: p}}})
	}), backupChunk)
	info, err := sys.journal.Backup(ctx, out)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return nil, err
	}
	return &messages.BackupResult{Bytes: float64(info.Bytes), Digest: info.Digest}, nil
}

// chunkWriter hands each write on as a piece of its own.
type chunkWriter func(p []byte) error

func (w chunkWriter) Write(p []byte) (int, error) {
	// The frame may still be on its way when the next piece is written over this one.
	if err := w(append([]byte(nil), p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}
