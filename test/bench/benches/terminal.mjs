import { prepareShells } from '../support/terminal.mjs';

/** Output of a bare shell, beside a process that only reads the same from a pseudo-terminal of its own. */
export default {
  name: 'terminal',
  title: 'terminal output, bare shell',
  unit: 'MB/s',
  least: 0.6,
  rounds: 2,
  async prepare(stage) {
    const shells = await prepareShells(stage, { RELAY_TERMINAL_TMUX: '0' });
    return { relay: shells.flood, bare: shells.bareFlood };
  },
};
