import { defineApp } from '../app.ts';
import { nameOf, prepend } from '../system.ts';
import { button, column, field, label, list } from '../view.ts';

interface Memory {
  typed: string;
}

/** Calls are written down, nobody is rung. */
export const dialer = defineApp<Memory>({
  package: 'com.android.dialer',
  label: 'Phone',
  start: () => ({ typed: '' }),
  screen({ page, system, state, set, changed }) {
    const number = state.typed || page.argument;
    const call = () => {
      prepend(system.calls, { number, at: system.clock.now() });
      changed();
    };
    return column(
      label('Phone'),
      field('number', 'Number', number, (typed) => set({ typed })),
      button('Call', call, { enabled: number !== '' }),
      label('Recent calls'),
      list(
        'calls',
        system.calls.map((one) => label(`Called ${nameOf(system, one.number)}`)),
      ),
    );
  },
  // A call is never placed by an intent: the person, or a confirmed `/call`, has to.
  accepts({ action, data }) {
    const number = /^tel:(.+)$/.exec(data)?.[1];
    const known = action === 'android.intent.action.DIAL' || action === 'android.intent.action.CALL';
    return known && number ? { name: 'main', argument: number } : null;
  },
});
