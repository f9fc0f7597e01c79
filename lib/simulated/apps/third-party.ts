import { defineApp, type ScreenContext } from '../app.ts';
import { button, column, field, icon, item, label, list, row, type View } from '../view.ts';

interface BrowserState {
  address: string;
}

const LINKS = ['News', 'Weather', 'Encyclopedia', 'Maps', 'Recipes', 'Radio', 'Timetables', 'Library', 'Museum', 'Zoo'];

/** Its pages exist in memory only. */
export const browser = defineApp<BrowserState>({
  package: 'com.android.browser',
  label: 'Browser',
  initialState: () => ({ address: '' }),
  screen({ page, state, set, open }) {
    const address = page.name === 'site' ? page.argument : 'about:start';
    return column(
      row(
        field('address', 'Search or type an address', state.address, (address) => set({ address })),
        button('Go', () => open('site', state.address), { enabled: state.address !== '' }),
      ),
      label(address, { id: 'title' }),
      list(
        'page',
        page.name === 'site'
          ? Array.from({ length: 40 }, (_, index) => label(`${address}, paragraph ${index + 1}`))
          : LINKS.map((name) => item([name], () => open('site', `https://${name.toLowerCase()}.example/`))),
      ),
    );
  },
  accepts: ({ action, data }) =>
    action === 'android.intent.action.VIEW' && /^https?:\/\//.test(data) ? { name: 'site', argument: data } : null,
});

/** The oldest notes are dropped. */
const MAX_NOTES = 100;

interface NotesState {
  notes: string[];
  draft: string;
}

function noteList({ state, set, open }: ScreenContext<NotesState>): View {
  const add = () => {
    set({ draft: '' });
    open('edit');
  };
  return column(
    row(label('Notes'), icon('New note', add)),
    list(
      'notes',
      state.notes.map((text, index) =>
        item([text], () => open('note', String(index)), { onLongClick: () => open('menu', String(index)) }),
      ),
    ),
  );
}

const noteEditor = ({ state, set, back }: ScreenContext<NotesState>): View =>
  column(
    label('New note'),
    field('note', 'Write something', state.draft, (draft) => set({ draft })),
    button(
      'Save',
      () => {
        set({ notes: [...state.notes, state.draft].slice(-MAX_NOTES), draft: '' });
        back();
      },
      { enabled: state.draft !== '' },
    ),
  );

const noteMenu = ({ page, state, set, back }: ScreenContext<NotesState>): View =>
  column(
    label(state.notes[Number(page.argument)] ?? ''),
    button('Delete note', () => {
      set({ notes: state.notes.filter((_, index) => index !== Number(page.argument)) });
      back();
    }),
    button('Keep', back),
  );

export const notes = defineApp<NotesState>({
  package: 'org.example.notes',
  label: 'Notes',
  initialState: () => ({ notes: ['Buy milk', 'Water the plants'], draft: '' }),
  screen(context) {
    switch (context.page.name) {
      case 'edit':
        return noteEditor(context);
      case 'menu':
        return noteMenu(context);
      case 'note':
        return column(label('Note'), label(context.state.notes[Number(context.page.argument)] ?? ''));
      default:
        return noteList(context);
    }
  },
});

/** As many products as fit on the screen together with the button below them. */
const MAX_BASKET = 15;

interface ShopState {
  basket: string[];
  orders: number;
}

const PRODUCTS = [
  ['Kettle', '24.00'],
  ['Teapot', '31.50'],
  ['Cups, set of four', '18.00'],
  ['Earl Grey, 250 g', '7.90'],
  ['Sugar bowl', '12.00'],
] as const;

const productList = ({ state, open }: ScreenContext<ShopState>): View =>
  column(
    row(
      label('Tea shop'),
      button(`Basket (${state.basket.length})`, () => open('basket')),
    ),
    list(
      'goods',
      PRODUCTS.map(([name, price]) => item([name, price], () => open('product', name))),
    ),
  );

function productPage({ page, state, set, back, open }: ScreenContext<ShopState>): View {
  const addToBasket = () => set({ basket: [...state.basket, page.argument].slice(-MAX_BASKET) });
  return column(
    label(page.argument),
    label(PRODUCTS.find(([name]) => name === page.argument)?.[1] ?? ''),
    button('Add to basket', () => {
      addToBasket();
      back();
    }),
    button('Buy now', () => {
      addToBasket();
      open('basket');
    }),
  );
}

const basketPage = ({ state, set, open }: ScreenContext<ShopState>): View =>
  column(
    label('Basket'),
    ...state.basket.map((name) => label(name)),
    button(
      'Pay',
      () => {
        set({ basket: [], orders: state.orders + 1 });
        open('thanks');
      },
      { id: 'pay', enabled: state.basket.length > 0 },
    ),
  );

export const shop = defineApp<ShopState>({
  package: 'org.example.shop',
  label: 'Tea shop',
  // Otherwise the example of cli/README.md would find the basket of its previous run.
  startsAnew: true,
  initialState: () => ({ basket: [], orders: 0 }),
  screen(context) {
    switch (context.page.name) {
      case 'product':
        return productPage(context);
      case 'basket':
        return basketPage(context);
      case 'thanks':
        return column(label('Thank you'), label(`Orders so far: ${context.state.orders}`));
      default:
        return productList(context);
    }
  },
});

/** On the default blocklist: while it is in the foreground, the agent can neither see nor act. */
export const bank = defineApp({
  package: 'com.chase.sig.android',
  label: 'Bank',
  initialState: () => ({ password: '', balance: 1234.5 }),
  screen({ page, state, set, open }) {
    if (page.name === 'account') return column(label('Balance'), label(state.balance.toFixed(2)));
    return column(
      label('Sign in'),
      field('password', 'Password', state.password, (password) => set({ password }), { password: true }),
      button('Sign in', () => open('account'), { enabled: state.password !== '' }),
    );
  },
});
