package gitdiff

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

const (
	// unpackFactor is how much a fetch may unpack to, in objects of the
	// largest size.
	unpackFactor = 64

	// chainFactor is how much a chain of deltas may unpack to, each made of the
	// one before. go-git makes room for all of them at once.
	chainFactor = 8

	// mostObjects is how many objects a fetch may bring. Each of them takes some
	// 300 bytes of memory while the pack is indexed.
	mostObjects = 2_000_000

	// packOverhead is the header and the checksum of a pack.
	packOverhead = 12 + 20

	// leastObject is the size of the smallest object in a pack: its header and
	// an empty zlib stream.
	leastObject = 1 + 8
)

// incomingPack is a pack that is being received into a repository.
type incomingPack struct {
	dir  string
	file *os.File
	size int64
}

func newIncomingPack(dir string) (*incomingPack, error) {
	file, err := os.CreateTemp(dir, tempPrefix+"pack_")
	if err != nil {
		return nil, fmt.Errorf("writing to the cache: %w", err)
	}
	return &incomingPack{dir: dir, file: file}, nil
}

func (p *incomingPack) Write(data []byte) (int, error) {
	n, err := p.file.Write(data)
	p.size += int64(n)
	if err != nil {
		err = fmt.Errorf("writing to the cache: %w", err)
	}
	return n, err
}

// discard deletes the pack, unless it was kept.
func (p *incomingPack) discard() {
	_ = p.file.Close()
	_ = os.Remove(p.file.Name())
}

// keep checks the pack, indexes it and renames both into place. The index comes
// first, since readers look for packs.
func (p *incomingPack) keep(ctx context.Context, objectBytes int64) (err error) {
	defer func() {
		if r := recover(); r != nil { // go-git reads what anybody may have sent
			err = badPack(fmt.Errorf("%v", r))
		}
	}()
	objects, err := p.inspect(ctx, objectBytes)
	if err != nil || objects == 0 {
		return err
	}
	index, checksum, err := p.index(ctx)
	if err != nil {
		return err
	}
	base := filepath.Join(p.dir, "pack-"+checksum.String())
	if err := writeIndex(base+".idx", index); err != nil {
		return err
	}
	if err := p.file.Close(); err != nil {
		return fmt.Errorf("writing to the cache: %w", err)
	}
	return os.Rename(p.file.Name(), base+".pack")
}

// inspect reads the headers of all objects before anything believes them: go-git
// makes room for as many objects and bytes as they say. It returns how many
// objects there are.
func (p *incomingPack) inspect(ctx context.Context, objectBytes int64) (uint32, error) {
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	scanner := packfile.NewScanner(p.file)
	_, count, err := scanner.Header()
	if err != nil {
		return 0, badPack(err)
	}
	if int64(count) > (p.size-packOverhead)/leastObject {
		return 0, badPack(errors.New("it announces more objects than it can hold"))
	}
	if count > mostObjects {
		return 0, fmt.Errorf("the server sent %d objects, and %d are accepted: %w", count, mostObjects, gitopsprovider.ErrLimit)
	}
	sizes := &packSizes{most: objectBytes, chains: map[int64]int64{}}
	for range count {
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		if err := sizes.next(scanner); err != nil {
			return 0, err
		}
	}
	return count, nil
}

// packSizes adds up what the objects of a pack unpack to.
type packSizes struct {
	most    int64 // of one object
	all     int64
	chains  map[int64]int64 // by the offset of a delta: its size and that of all it is made of
	longest int64
}

// next reads an object.
func (s *packSizes) next(scanner *packfile.Scanner) error {
	header, err := scanner.NextObjectHeader()
	if err != nil {
		return badPack(err)
	}
	size := header.Length
	if size >= 0 && size <= s.most {
		delta := &deltaHead{}
		if _, _, err := scanner.NextObject(delta); err != nil {
			return badPack(err)
		}
		if header.Type.IsDelta() {
			size = max(size, delta.targetSize())
		}
	}
	if size < 0 || size > s.most {
		return fmt.Errorf("the server sent an object of more than %d bytes: %w", s.most, gitopsprovider.ErrLimit)
	}
	if s.all += size; s.all > unpackFactor*s.most {
		return fmt.Errorf("what the server sent unpacks to more than %d bytes: %w", unpackFactor*s.most, gitopsprovider.ErrLimit)
	}
	if s.chain(header, size) > chainFactor*s.most {
		return fmt.Errorf("the server sent deltas that unpack to more than %d bytes: %w", chainFactor*s.most, gitopsprovider.ErrLimit)
	}
	return nil
}

// chain returns the size of a chain of deltas. The base of one that is named by
// its hash is not known yet, so that it is taken for the worst.
func (s *packSizes) chain(header *packfile.ObjectHeader, size int64) int64 {
	switch header.Type {
	case plumbing.OFSDeltaObject:
		size += s.chains[header.OffsetReference]
	case plumbing.REFDeltaObject:
		size += s.longest
	default:
		return size
	}
	s.chains[header.Offset] = size
	s.longest = max(s.longest, size)
	return size
}

// deltaHead keeps the beginning of a delta, which says how large its base and
// what it makes are.
type deltaHead struct {
	bytes [2 * binary.MaxVarintLen64]byte
	n     int
}

func (d *deltaHead) Write(p []byte) (int, error) {
	d.n += copy(d.bytes[d.n:], p)
	return len(p), nil
}

// targetSize is negative if the delta does not say.
func (d *deltaHead) targetSize() int64 {
	_, n := binary.Uvarint(d.bytes[:d.n])
	if n <= 0 {
		return -1
	}
	size, n := binary.Uvarint(d.bytes[n:d.n])
	if n <= 0 {
		return -1
	}
	return int64(size) // a size beyond int64 is negative, and refused
}

// index names the objects of the pack, by their content.
func (p *incomingPack) index(ctx context.Context) (*idxfile.MemoryIndex, plumbing.Hash, error) {
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return nil, plumbing.ZeroHash, err
	}
	writer := &idxfile.Writer{}
	parser, err := packfile.NewParser(packfile.NewScanner(p.file), writer, observer{ctx})
	if err != nil {
		return nil, plumbing.ZeroHash, err
	}
	checksum, err := parser.Parse()
	if err != nil {
		return nil, plumbing.ZeroHash, ofContext(ctx, badPack(err))
	}
	index, err := writer.Index()
	return index, checksum, err
}

// observer ends the indexing of a pack with its context.
type observer struct{ ctx context.Context }

func (o observer) OnHeader(uint32) error { return o.ctx.Err() }

func (o observer) OnInflatedObjectHeader(plumbing.ObjectType, int64, int64) error {
	return o.ctx.Err()
}

func (o observer) OnInflatedObjectContent(plumbing.Hash, int64, uint32, []byte) error { return nil }

func (o observer) OnFooter(plumbing.Hash) error { return o.ctx.Err() }

func writeIndex(path string, index *idxfile.MemoryIndex) error {
	return writeFile(path, func(w io.Writer) error {
		_, err := idxfile.NewEncoder(w).Encode(index)
		return err
	})
}

// badPack is the error of a pack that is none, or was cut off.
func badPack(err error) error {
	return fmt.Errorf("the server sent a pack that cannot be read: %w", err)
}
