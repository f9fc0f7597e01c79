import { prepareShells } from '../support/terminal.mjs';

/** A flood through tmux, which draws only what is visible and drops the rest: a figure without a bound. */
export default {
  name: 'terminal-tmux',
  title: 'terminal output, tmux',
  unit: 'MB/s',
  minRatio: 0,
  operation: 'MB',
  rounds: 1,
  async prepare(stage) {
    const shells = await prepareShells(stage, { RELAY_TERMINAL_TMUX: '1' });
    return { relay: shells.flood, bare: shells.bareFlood };
  },
};
