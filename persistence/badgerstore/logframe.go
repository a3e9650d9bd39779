package badgerstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/swampd/swampd/persistence"
)

// A frame of an output log, integers little endian:
//
//	length of what follows the checksum   4 bytes
//	crc32c of it                          4 bytes
//	offset of the first byte              8 bytes
//	time, nanoseconds since 1970          8 bytes
//	length of the stream's name, name     1 byte and its bytes
//	data                                  the rest
const (
	frameHeader  = 8
	frameFixed   = 8 + 8 + 1
	frameData    = 512 << 10 // larger chunks are split
	frameMaximum = frameFixed + 255 + frameData
)

// errTorn says that there is no whole frame: the log was cut while it was written, or it is damaged.
var errTorn = errors.New("no whole frame")

func appendFrame(buf []byte, chunk persistence.Chunk) []byte {
	stream := chunk.Stream[:min(len(chunk.Stream), 255)]
	start := len(buf)
	buf = binary.LittleEndian.AppendUint32(buf, uint32(frameFixed+len(stream)+len(chunk.Data)))
	buf = append(buf, 0, 0, 0, 0)
	buf = binary.LittleEndian.AppendUint64(buf, chunk.Offset)
	buf = binary.LittleEndian.AppendUint64(buf, uint64(chunk.Time.UnixNano()))
	buf = append(buf, byte(len(stream)))
	buf = append(buf, stream...)
	buf = append(buf, chunk.Data...)
	binary.LittleEndian.PutUint32(buf[start+4:], castagnoli(buf[start+frameHeader:]))
	return buf
}

// frameReader reads frames one after the other.
type frameReader struct {
	in  *bufio.Reader
	buf []byte
}

func newFrameReader(in io.Reader) *frameReader {
	return &frameReader{in: bufio.NewReaderSize(in, 64<<10)}
}

// next returns the next chunk, whose data is valid until the call after, and the size of its frame. It returns io.EOF at
// the end, and errTorn at what is not a whole frame.
func (r *frameReader) next() (chunk persistence.Chunk, size int64, err error) {
	var header [frameHeader]byte
	switch _, err := io.ReadFull(r.in, header[:]); {
	case errors.Is(err, io.EOF):
		return chunk, 0, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return chunk, 0, errTorn
	case err != nil:
		return chunk, 0, err
	}
	length := int(binary.LittleEndian.Uint32(header[:]))
	if length < frameFixed || length > frameMaximum {
		return chunk, 0, errTorn
	}
	if cap(r.buf) < length {
		r.buf = make([]byte, length)
	}
	payload := r.buf[:length]
	switch _, err := io.ReadFull(r.in, payload); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return chunk, 0, errTorn
	case err != nil:
		return chunk, 0, err
	}
	if castagnoli(payload) != binary.LittleEndian.Uint32(header[4:]) {
		return chunk, 0, errTorn
	}
	name := int(payload[16])
	if frameFixed+name > length {
		return chunk, 0, errTorn
	}
	return persistence.Chunk{
		Offset: binary.LittleEndian.Uint64(payload),
		Time:   time.Unix(0, int64(binary.LittleEndian.Uint64(payload[8:]))).UTC(),
		Stream: string(payload[frameFixed : frameFixed+name]),
		Data:   payload[frameFixed+name:],
	}, frameHeader + int64(length), nil
}
