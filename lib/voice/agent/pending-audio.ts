import type { ProviderCommand } from './core/state.ts';

/** Bytes of audio that are kept: some minutes of speech. */
const MAX_BYTES = 8 * 1024 * 1024;

/**
 * Audio of the user that a provider may lose with its connection: the utterance being spoken, and every utterance that ends
 * without a connection. Bounded: of a longer utterance, the beginning is dropped.
 */
export class PendingAudio {
  #commands: ProviderCommand[] = [];
  #bytes = 0;

  /** Records a command to the provider. `isSent`: a provider was connected. */
  note(command: ProviderCommand, isSent: boolean): void {
    switch (command.type) {
      case 'audio':
        this.#commands.push(command);
        this.#bytes += command.pcm.length;
        while (this.#bytes > MAX_BYTES) this.#bytes -= sizeOf(this.#commands.shift());
        break;
      case 'commit':
        if (isSent) this.#reset([]);
        else if (this.#commands.length > 0) this.#commands.push(command);
        break;
      case 'clear':
        this.#reset(this.#commands.slice(0, this.#lastCommit() + 1));
        break;
      case 'cancel':
        if (!isSent) this.#reset(this.#commands.slice(this.#lastCommit() + 1));
        break;
    }
  }

  /** The commands for a new connection. Forgets the audio that they commit. */
  replay(): readonly ProviderCommand[] {
    const commands = this.#commands;
    this.#reset(commands.slice(this.#lastCommit() + 1));
    return commands;
  }

  #lastCommit(): number {
    return this.#commands.findLastIndex(({ type }) => type === 'commit');
  }

  #reset(commands: ProviderCommand[]): void {
    this.#commands = commands;
    this.#bytes = commands.reduce((sum, command) => sum + sizeOf(command), 0);
  }
}

const sizeOf = (command: ProviderCommand | undefined): number => (command?.type === 'audio' ? command.pcm.length : 0);
