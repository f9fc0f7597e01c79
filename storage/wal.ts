// The format of a write-ahead log: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
const HEADER = 32;
const FRAME_HEADER = 24;
const MAGIC = 0x377f0682;

/**
 * True if the bytes of a write-ahead log are damaged before its last transaction. SQLite takes the first bad frame for
 * the end of the log and silently drops the rest, which may undo revocations. A torn last transaction is not damage:
 * its writers were not answered.
 */
export function isDamagedLog(log: Uint8Array): boolean {
  // The header is synced before the first frame is written: without a complete header there is no frame.
  if (log.length <= HEADER) return false;
  const view = new DataView(log.buffer, log.byteOffset, log.length);
  // The last bit of the magic number gives the byte order of the words in the checksums.
  const magic = view.getUint32(0);
  const sums = new RunningSums(view, magic % 2 === 0);
  sums.add(0, 24);
  if (!sums.matchStoredAt(24) || magic - (magic % 2) !== MAGIC) return true;

  const size = FRAME_HEADER + view.getUint32(8);
  const salts = view.getBigUint64(16);
  let isIntact = true;
  let isCommit = false;
  // True if the frame belongs to an unbroken chain that begins after a commit: the rest of a torn transaction never does.
  let isLater = false;
  for (let at = HEADER; at + size <= log.length; at += size) {
    const isOfThisLog = view.getBigUint64(at + 8) === salts;
    sums.add(at, at + 8);
    sums.add(at + FRAME_HEADER, at + size);
    const isGood = sums.matchStoredAt(at + 16) && isOfThisLog;
    isIntact &&= isGood;
    isLater = !isIntact && isGood && (isLater || isCommit);
    isCommit = isOfThisLog && view.getUint32(at + 4) !== 0;
    if (isLater && isCommit) return true;
  }
  return false;
}

/** The checksums of a log: two sums over pairs of 32-bit words, carried on from frame to frame. */
class RunningSums {
  readonly #view: DataView;
  readonly #isLittleEndian: boolean;
  #first = 0;
  #second = 0;

  constructor(view: DataView, isLittleEndian: boolean) {
    this.#view = view;
    this.#isLittleEndian = isLittleEndian;
  }

  add(from: number, to: number): void {
    const view = this.#view;
    let first = this.#first;
    let second = this.#second;
    for (let at = from; at < to; at += 8) {
      first = (first + view.getUint32(at, this.#isLittleEndian) + second) >>> 0;
      second = (second + view.getUint32(at + 4, this.#isLittleEndian) + first) >>> 0;
    }
    this.#first = first;
    this.#second = second;
  }

  /** Compares with the stored sums and continues from those. */
  matchStoredAt(at: number): boolean {
    const first = this.#first;
    const second = this.#second;
    this.#first = this.#view.getUint32(at);
    this.#second = this.#view.getUint32(at + 4);
    return first === this.#first && second === this.#second;
  }
}
