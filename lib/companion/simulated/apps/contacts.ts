import { type Context, defineApp } from '../app.ts';
import { button, column, field, item, label, list, type View } from '../view.ts';

interface Memory {
  query: string;
}

function everybody({ system, state, set, open }: Context<Memory>): View {
  const found = system.contacts.filter(({ name }) => name.toLowerCase().includes(state.query.toLowerCase()));
  return column(
    label('Contacts'),
    field('search', 'Search contacts', state.query, (query) => set({ query })),
    list(
      'people',
      found.map(({ id, name }) => item([name], () => open('person', id))),
    ),
  );
}

function person({ page, system, start }: Context<Memory>): View {
  const found = system.contacts.find(({ id }) => id === page.argument);
  const action = (name: string, data: string) => start({ action: `android.intent.action.${name}`, data });
  return column(
    label(found?.name ?? 'Nobody'),
    ...(found?.phones ?? []).flatMap(({ number, label: kind }) => [
      label(`${kind} ${number}`),
      button(`Dial ${number}`, () => action('DIAL', `tel:${number}`)),
      button(`Text ${number}`, () => action('SENDTO', `smsto:${number}`)),
    ]),
  );
}

export const contacts = defineApp<Memory>({
  package: 'com.android.contacts',
  label: 'Contacts',
  start: () => ({ query: '' }),
  screen: (context) => (context.page.name === 'person' ? person(context) : everybody(context)),
});
