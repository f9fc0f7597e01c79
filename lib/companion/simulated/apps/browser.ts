import { defineApp } from '../app.ts';
import { button, column, field, item, label, list, row } from '../view.ts';

interface Memory {
  address: string;
}

const LINKS = ['News', 'Weather', 'Encyclopedia', 'Maps', 'Recipes', 'Radio', 'Timetables', 'Library', 'Museum', 'Zoo'];

/** Pages that exist in memory only. */
export const browser = defineApp<Memory>({
  package: 'com.android.browser',
  label: 'Browser',
  start: () => ({ address: '' }),
  screen({ page, state, set, open }) {
    const shown = page.name === 'site' ? page.argument : 'about:start';
    return column(
      row(
        field('address', 'Search or type an address', state.address, (address) => set({ address })),
        button('Go', () => open('site', state.address), { enabled: state.address !== '' }),
      ),
      label(shown, { id: 'title' }),
      list(
        'page',
        page.name === 'site'
          ? Array.from({ length: 40 }, (_, index) => label(`${shown}, paragraph ${index + 1}`))
          : LINKS.map((name) => item([name], () => open('site', `https://${name.toLowerCase()}.example/`))),
      ),
    );
  },
  accepts: ({ action, data }) =>
    action === 'android.intent.action.VIEW' && /^https?:\/\//.test(data) ? { name: 'site', argument: data } : null,
});
