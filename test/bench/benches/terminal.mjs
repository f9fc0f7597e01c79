import { prepareShells } from '../support/terminal.mjs';

/** Output of a bare shell. The baseline only reads the same output from its own pseudo-terminal. */
export default {
  name: 'terminal',
  title: 'terminal output, bare shell',
  unit: 'MB/s',
  minRatio: 0.6,
  operation: 'MB',
  rounds: 2,
  async prepare(stage) {
    const shells = await prepareShells(stage, { RELAY_TERMINAL_TMUX: '0' });
    return { relay: shells.flood, bare: shells.bareFlood };
  },
};
